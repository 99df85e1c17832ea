"""Differences of two pipelines: steps, outputs, columns, aggregates, lookups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tallyweir.sinks.postgres.versions.version_plan import Change

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
