"""Decides what becomes of the open windows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from psycopg import sql

from tallyweir.sinks.postgres.outputs.window_aggregates import state_definition
from tallyweir.sinks.postgres.server.columns import Column, table_identifier
from tallyweir.sinks.postgres.server.naming import state_table
from tallyweir.sinks.postgres.versions.described_output import DescribedOutput
from tallyweir.sinks.postgres.versions.held_knowledge import HeldWindows
from tallyweir.sinks.postgres.versions.holdings import Holdings
from tallyweir.sinks.postgres.versions.version_plan import (
    Finding,
    PlannedFate,
    PlanVerdict,
    Reckoning,
    StateFate,
)

_Output = Mapping[str, Any]

_ADD = sql.SQL("ALTER TABLE {} ADD COLUMN {}")
_DROP = sql.SQL("ALTER TABLE {} DROP COLUMN {}")
_RENAME = sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}")


def compare_windows(
    before: _Output,
    after: _Output,
    described: DescribedOutput,
    holdings: Holdings,
    held: HeldWindows,
) -> tuple[HeldWindows, Reckoning]:
    """Compare a window output that both versions have.

    Windows that have begun keep what they count. They never learn what an added
    aggregate would have made of their first events: it is NULL in them.

    Args:
        before: The output as the version in force lays it out.
        after: The output as the other version lays it out.
        described: The output as both definitions describe it.
        holdings: What the home holds.
        held: What the version in force does not know of its windows.

    Returns:
        What the other version will not know, and what follows from the differences.
    """
    findings = list(_find_refused(before, after, described, holdings))
    if findings:
        return held, Reckoning(findings=tuple(findings))
    closed_us, reckoning = _reckon_lateness(before, after, holdings, held)
    had = {one["column"]: one for one in before["aggregates"]}
    has = {one["column"]: one for one in after["aggregates"]}
    added = [name for name in has if name not in had]
    known = {name: us for name, us in held.known_after_us.items() if name in has}
    begun_us = holdings.table(after["table"]).begun_through_us
    if begun_us is not None:
        # A session that begins when another ends is a session of its own.
        after_us = begun_us - 1 if "gap_us" in after["windows"] else begun_us
        known |= dict.fromkeys(added, after_us)
    reckoning += _reckon_aggregates(before, after, holdings)
    return HeldWindows(closed_through_us=closed_us, known_after_us=known), reckoning


def _find_refused(
    before: _Output,
    after: _Output,
    described: DescribedOutput,
    holdings: Holdings,
) -> list[Finding]:
    groups_anew = described.is_recomputed(name for name, _ in after["keys"])
    changed = [
        text
        for name, text in (
            ("windows", "the kind or size of its windows"),
            ("keys", "what it groups by"),
            ("discards", "its panes"),
        )
        if before[name] != after[name] or (name == "keys" and groups_anew)
    ]
    said = [
        {a["column"]: a for a in one.get("aggregates", ())}
        for one in (described.before, described.after)
    ]
    kept = [
        {a["column"]: a["state"] for a in one["aggregates"]} for one in (before, after)
    ]
    changed += [
        f"what {column} means"
        for column in kept[0].keys() & kept[1].keys()
        if said[0].get(column) != said[1].get(column)
        or described.means_another(said[1].get(column, {}).get("argument"))
        or [t for _, t in kept[0][column]] != [t for _, t in kept[1][column]]
    ]
    table = after["table"]
    there = holdings.table(table)
    if before["waits"] and not after["waits"] and there.waiting_rows:
        changed.append(f"early, while {there.waiting_rows} windows wait to be shown,")
    if before["state"] != after["state"] and not after["is_home"]:
        changed.append("its aggregates, in another database,")
    if not changed:
        return []
    return [
        Finding(
            verdict=PlanVerdict.INCOMPATIBLE,
            code="WINDOW_CHANGED",
            subject=f"output {table}",
            saw=f"{', '.join(changed)} changed.",
            why="Its open windows cannot continue under another definition, and its "
            "rows would have two meanings.",
            fix="Give the changed output another table, or a changed aggregate another "
            "name; both may be written at the same time.",
        )
    ]


def _reckon_lateness(
    before: _Output, after: _Output, holdings: Holdings, held: HeldWindows
) -> tuple[int | None, Reckoning]:
    had, has = before["allowed_lateness_us"], after["allowed_lateness_us"]
    watermark_us = holdings.watermark_us
    subject = f"output {after['table']}"
    if has == had:
        return held.closed_through_us, Reckoning()
    if has < had or watermark_us is None:
        finding = Finding(
            verdict=PlanVerdict.COMPATIBLE,
            subject=subject,
            saw="Its allowed lateness changes.",
            why="Windows are final sooner."
            if has < had
            else ("No window is final yet."),
        )
        return held.closed_through_us, Reckoning(findings=(finding,))
    closed_us = watermark_us - had
    if held.closed_through_us is not None:
        closed_us = max(closed_us, held.closed_through_us)
    finding = Finding(
        verdict=PlanVerdict.NEEDS_MIGRATION,
        subject=subject,
        saw="Its allowed lateness grows.",
        why="Final windows stay final, because their state is gone; the update "
        "records up to which time.",
    )
    return closed_us, Reckoning(findings=(finding,))


def _reckon_aggregates(
    before: _Output, after: _Output, holdings: Holdings
) -> Reckoning:
    table = after["table"]
    subject = f"output {table}"
    there = holdings.table(table)
    if before["state"] == after["state"] or not there.state_columns:
        fate = StateFate(
            subject=subject,
            state="windows",
            fate=PlannedFate.KEPT,
            why="Their state has not changed.",
        )
        return Reckoning(fates=(fate,))
    had = {one["column"]: one for one in before["aggregates"]}
    has = {one["column"]: one for one in after["aggregates"]}
    added = [name for name in has if name not in had]
    removed = [name for name in had if name not in has]
    saw: list[str] = []
    why = ["Counts and all other aggregates continue."]
    if added:
        saw.append(f"{', '.join(added)} added")
        why.append(f"{', '.join(added)}: NULL in windows that had already begun.")
    if removed:
        saw.append(f"{', '.join(removed)} removed")
        why.append(f"{', '.join(removed)}: NULL in windows that are not final.")
    told = " ".join(why)
    return Reckoning(
        findings=(
            Finding(
                verdict=PlanVerdict.NEEDS_MIGRATION,
                subject=subject,
                saw=f"The state of its windows changes: "
                f"{'; '.join(saw) or 'other places of what they hold'}.",
                why=told,
            ),
        ),
        fates=(
            StateFate(
                subject=subject, state="windows", fate=PlannedFate.MIGRATED, why=told
            ),
        ),
        statements=(
            *_reshape(before, after, holdings),
            *(
                # A row that goes on must not show what was true at the update.
                sql.SQL("UPDATE {} SET {} = NULL WHERE NOT final").format(
                    table_identifier(table), sql.Identifier(name)
                )
                for name in removed
                if name in there.columns
            ),
        ),
    )


def _reshape(
    before: _Output, after: _Output, holdings: Holdings
) -> Iterator[sql.Composed]:
    """Give the state its new columns in place, however many windows are open.

    The partials of an aggregate are named by its place in the output, which may have
    changed. So they are renamed, by way of passing names, because another aggregate
    may have the new names still.
    """
    state = state_table(holdings.number, after["table"])
    had = {one["column"]: one["state"] for one in before["aggregates"]}
    moved = {
        former: name
        for one in after["aggregates"]
        for (former, _), (name, _) in zip(
            had.get(one["column"], ()), one["state"], strict=False
        )
    }
    own = {name for one in before["aggregates"] for name, _ in one["state"]}
    stay = {name for name, *_ in before["state"]} - own
    wanted = {name for name, *_ in after["state"]}

    for name, *_ in before["state"]:
        if name not in moved and (name in own or name not in wanted):
            yield _DROP.format(state, sql.Identifier(name))
    renamed = {former: name for former, name in moved.items() if former != name}
    for former in renamed:
        passing = sql.Identifier(f"passing_{former}")
        yield _RENAME.format(state, sql.Identifier(former), passing)
    for former, name in renamed.items():
        passing = sql.Identifier(f"passing_{former}")
        yield _RENAME.format(state, passing, sql.Identifier(name))
    for name, kind, is_bytewise in after["state"]:
        if name not in moved.values() and name not in stay:
            column = Column(name=name, postgres_type=kind)
            definition = state_definition(column, is_bytewise=is_bytewise)
            yield _ADD.format(state, definition)


def drop_windows(output: _Output, holdings: Holdings) -> Reckoning:
    """Drop the open windows of an output that is removed."""
    table = output["table"]
    if not output["is_home"] or not holdings.table(table).state_columns:
        return Reckoning()
    why = "The output is removed; rows that are not final stay as they are."
    return Reckoning(
        findings=(
            Finding(
                verdict=PlanVerdict.NEEDS_MIGRATION,
                subject=f"output {table}",
                saw="It has a table of open windows.",
                why=why,
            ),
        ),
        fates=(
            StateFate(
                subject=f"output {table}",
                state="windows",
                fate=PlannedFate.LOST,
                why=why,
            ),
        ),
        statements=(
            sql.SQL("DROP TABLE IF EXISTS {}").format(
                state_table(holdings.number, table)
            ),
        ),
    )
