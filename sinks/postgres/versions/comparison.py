"""Compares two versions of a pipeline: what it takes to go on with the second.

The comparison is a pure function of the two versions and of what the home holds. There
is one verdict: a driver that starts with a changed file, ``plan``, ``update`` and
``rollback`` all get it here. What becomes of source, windows, keyed state and columns
is decided by the modules of these names; outputs that come, go or move, by this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tallyweir.sinks.postgres.ledger.output_kinds import kind_of
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.versions.described_output import (
    DescribedOutput,
    find_recomputed,
)
from tallyweir.sinks.postgres.versions.held_knowledge import HeldKnowledge, HeldWindows
from tallyweir.sinks.postgres.versions.holdings import Holdings
from tallyweir.sinks.postgres.versions.keyed_comparison import compare_keyed, drop_keyed
from tallyweir.sinks.postgres.versions.source_comparison import (
    compare_source,
    reckon_ids,
)
from tallyweir.sinks.postgres.versions.table_columns import reckon_columns
from tallyweir.sinks.postgres.versions.version_plan import (
    Change,
    DescribedVersion,
    Finding,
    PlannedFate,
    PlanVerdict,
    Reckoning,
    StateFate,
    VersionPlan,
)
from tallyweir.sinks.postgres.versions.window_comparison import (
    compare_windows,
    drop_windows,
)

#: Codes of findings that would make IDs, clocks or records of the topic worthless.
_FOR_THE_SAKE_OF_EVENTS = frozenset({"CONTRACT_CHANGED", "SOURCE_CHANGED"})


def compare(
    former: DescribedVersion,
    wanted: DescribedVersion,
    holdings: Holdings,
    held: HeldKnowledge,
) -> VersionPlan:
    """Say what becomes of a pipeline when ``wanted`` follows ``former``.

    Args:
        former: The version in force.
        wanted: The version that is to follow.
        holdings: What the home holds of both.
        held: What the version in force does not know.
    """
    reckoning = compare_source(former, wanted)
    ids_from_us, of_ids = reckon_ids(former, wanted, holdings, held.ids_from_us)
    reckoning += of_ids
    reckoning += find_moved(former.definition, wanted.definition)
    windows: dict[str, HeldWindows] = {}
    recomputed = find_recomputed(former.definition, wanted.definition)
    before, after = _by_table(former), _by_table(wanted)
    for table, output in after.items():
        described = DescribedOutput(
            before=_definition_of(former, table),
            after=_definition_of(wanted, table),
            recomputed=recomputed,
        )
        known = windows_held = held.windows.get(table, HeldWindows())
        if table not in before:
            reckoning += _added(output, holdings)
            continue
        if output["kind"] != before[table]["kind"]:
            reckoning += _of_another_kind(before[table], output)
            continue
        kind = kind_of(output)
        if kind.has_windows:
            windows_held, of_output = compare_windows(
                before[table],
                output,
                described,
                holdings,
                known,
            )
            if windows_held != HeldWindows():
                windows[table] = windows_held
        elif kind.keeps_keys:
            of_output = compare_keyed(
                before[table],
                output,
                described,
                holdings,
            )
        else:
            of_output = Reckoning()
        reckoning += of_output + reckon_columns(before[table], output, holdings)
    for table in before.keys() - after.keys():
        reckoning += _removed(before[table], holdings)
    if not holdings.has_events:
        findings = tuple(map(_unburdened, reckoning.findings))
        reckoning = replace(reckoning, findings=findings)
    return VersionPlan(
        pipeline=str(wanted.definition.get("name", "")),
        changes=graph_difference(former.definition, wanted.definition),
        reckoning=reckoning,
        held=HeldKnowledge(ids_from_us=ids_from_us, windows=windows),
    )


def _unburdened(finding: Finding) -> Finding:
    """Let an update allow what only events that were read forbid: there are none."""
    if finding.code not in _FOR_THE_SAKE_OF_EVENTS:
        return finding
    return replace(
        finding,
        verdict=PlanVerdict.NEEDS_MIGRATION,
        why="Until now, every record that was read became a dead letter.",
        fix="",
        code="",
    )


def _by_table(version: DescribedVersion) -> dict[str, Mapping[str, Any]]:
    return {output["table"]: output for output in version.layout["outputs"]}


def _definition_of(version: DescribedVersion, table: str) -> Mapping[str, Any]:
    outputs: list[Mapping[str, Any]] = version.definition["outputs"]
    return next((output for output in outputs if output["table"] == table), {})


def _added(output: Mapping[str, Any], holdings: Holdings) -> Reckoning:
    table = output["table"]
    subject = f"output {table}"
    there = holdings.table(table)
    if there.other_owner:
        return Reckoning(
            findings=(
                Finding(
                    verdict=PlanVerdict.INCOMPATIBLE,
                    code="TABLE_OWNED",
                    subject=subject,
                    saw=f"Table {table} belongs to pipeline {there.other_owner}.",
                    why="Neither pipeline can account for the rows in a shared table.",
                    fix="Name another table.",
                ),
            )
        )
    if there.open_rows:
        return Reckoning(
            findings=(
                Finding(
                    verdict=PlanVerdict.INCOMPATIBLE,
                    code="WINDOWS_LEFT_OPEN",
                    subject=subject,
                    saw=f"Table {table} has {there.open_rows} rows of windows that are "
                    "not final.",
                    why="The output would start those windows from zero and "
                    "overwrite what they had counted.",
                    fix="Name another table, or delete its rows that are not final.",
                ),
            )
        )
    missing = [
        name for name, _ in output.get("columns", ()) if name not in there.columns
    ]
    if there.columns and missing:
        return Reckoning(
            findings=(
                Finding(
                    verdict=PlanVerdict.INCOMPATIBLE,
                    code="TABLE_DIFFERS",
                    subject=subject,
                    saw=f"Table {table} exists but lacks {', '.join(missing)}.",
                    why="Another user or another pipeline created it.",
                    fix="Name another table, or add the columns to it.",
                ),
            )
        )
    why = "For this output, the driver does not reread events from before the update."
    if kind_of(output).has_windows:
        why += " Windows that have begun count from the update on."
    return Reckoning(
        findings=(
            Finding(
                verdict=PlanVerdict.COMPATIBLE,
                subject=subject,
                saw=f"The new version writes table {table}.",
                why="The driver creates it when it starts."
                if not there.columns
                else "The table exists.",
            ),
        ),
        fates=(
            StateFate(
                subject=subject, state="rows", fate=PlannedFate.STARTS_EMPTY, why=why
            ),
        ),
    )


def _removed(output: Mapping[str, Any], holdings: Holdings) -> Reckoning:
    table = output["table"]
    told = Reckoning(
        findings=(
            Finding(
                verdict=PlanVerdict.COMPATIBLE,
                subject=f"output {table}",
                saw=f"The pipeline no longer writes table {table}.",
                why="Its rows stay.",
            ),
        )
    )
    kind = kind_of(output)
    if kind.has_windows:
        return told + drop_windows(output, holdings)
    if kind.keeps_keys:
        return told + drop_keyed(output, holdings)
    return told


def _of_another_kind(before: Mapping[str, Any], output: Mapping[str, Any]) -> Reckoning:
    table = output["table"]
    return Reckoning(
        findings=(
            Finding(
                verdict=PlanVerdict.INCOMPATIBLE,
                code="TABLE_DIFFERS",
                subject=f"output {table}",
                saw=f"The output {table} changes its kind from {before['kind']} to "
                f"{output['kind']}.",
                why="Its existing rows would mean something else.",
                fix="Give the output another table.",
            ),
        )
    )


def find_moved(stored: Mapping[str, Any], definition: Mapping[str, Any]) -> Reckoning:
    """Find outputs that would write a table's rows to other databases than before.

    The rows that are written would stay where they are, and windows that are still open
    would begin again from nothing elsewhere. The number of branches that publish an
    output in its database may change.

    Args:
        stored: The pipeline's definition as it last ran.
        definition: The definition that it is to run now.
    """
    before = {output["table"]: _place_of(output) for output in stored["outputs"]}
    findings = []
    for output in definition["outputs"]:
        table, place = output["table"], _place_of(output)
        if before.get(table, place) != place:
            finding = Finding(
                verdict=PlanVerdict.INCOMPATIBLE,
                code="OUTPUT_MOVED",
                subject=f"output {table}",
                saw=f"The output {table} moves from {_text(before[table])} to "
                f"{_text(place)}.",
                why="Its existing rows would stay behind, and its open windows would "
                "be split.",
                fix="Undo the change, or give the output another table.",
            )
            findings.append(finding)
    return Reckoning(findings=tuple(findings))


def _place_of(output: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    # Definitions leave out the home, as they did before there were other databases.
    return output.get("databases", [HOME]), output.get("shard_by", [])


def _text(place: tuple[list[str], list[str]]) -> str:
    databases, shard_by = place
    by = f" by {', '.join(shard_by)}" if shard_by else ""
    return f"{', '.join(databases)}{by}"


#: The path to a part, from the whole to its parts.
_Path = tuple[str, ...]

#: Keys of an output that name it, or whose entries are parts of their own.
_NAMED = frozenset({"table", "kind", "columns", "aggregates"})


def graph_difference(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[Change, ...]:
    """Compare two definitions; if a whole is new or gone, leave out its parts."""
    former, wanted = dict(_parts(before)), dict(_parts(after))
    changes = []
    for path in [*former, *(path for path in wanted if path not in former)]:
        had, has = former.get(path), wanted.get(path)
        whole = path[:-1]
        is_told = bool(whole) and (whole not in former or whole not in wanted)
        if had == has or is_told:
            continue
        kind = "added" if path not in former else "changed"
        if path not in wanted:
            kind = "removed"
        changes.append(Change(kind=kind, what=": ".join(path), before=had, after=has))
    return tuple(changes)


def _parts(definition: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    for key, value in definition.get("source", {}).items():
        yield (f"source.{key}",), value
    for key, value in (definition.get("deduplicate") or {"horizon": "off"}).items():
        yield (f"deduplicate.{key}",), value
    yield ("guarantee",), definition.get("guarantee", "exactly_once")
    for key in ("filter", "dead_letter_limit", "monitor", "code_version"):
        if definition.get(key) is not None:
            yield (key,), definition[key]
    for name, expression in definition.get("compute", ()):
        yield (f"computed column {name}",), expression
    for rule in definition.get("validate", ()):
        yield (f"rule {rule['reason_code']}",), rule["condition"]
    for lookup in definition.get("enrich", ()):
        yield (f"lookup {lookup.get('table') or lookup.get('topic')}",), lookup
    for model in definition.get("predict", ()):
        yield (f"model {model['model']}",), model
    for output in definition.get("outputs", ()):
        yield from _output_parts(output)


def _output_parts(output: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    whole = f"output {output_name(output)}"
    yield (whole,), output.get("kind")
    columns = output.get("columns", ())
    if columns is None:
        yield (whole, "columns"), "all"
    for column in columns or ():
        name, kind = (column, True) if isinstance(column, str) else column
        yield (whole, f"column {name}"), kind
    for one in output.get("aggregates", ()):
        text = f"{one['function']}({one['argument']})"
        if "fraction" in one:
            text = f"{one['function']}({one['argument']}, {one['fraction']})"
        yield (whole, f"aggregate {one['column']}"), text
    for key, value in output.items():
        if key not in _NAMED:
            yield (whole, key), value


def output_name(output: Mapping[str, Any]) -> str:
    """Name an output of a definition: by its table, or by its topic."""
    topic = output.get("topic")
    return str(output["table"]) if topic is None else f"to topic {topic}"
