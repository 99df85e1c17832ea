"""Decides what becomes of the columns of a result table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from psycopg import sql

from tallyweir.sinks.postgres.server.columns import table_identifier, type_name
from tallyweir.sinks.postgres.versions.holdings import Holdings
from tallyweir.sinks.postgres.versions.version_plan import (
    Finding,
    PlanVerdict,
    Reckoning,
)


def reckon_columns(
    before: Mapping[str, Any], after: Mapping[str, Any], holdings: Holdings
) -> Reckoning:
    """Compare the columns of a table that both versions write.

    A missing column is added. A column that is not written any more stays, and is NULL
    in new rows.
    """
    former = dict(before.get("columns", ()))
    wanted = dict(after.get("columns", ()))
    table = after["table"]
    if not after["is_home"]:
        return _elsewhere(table, [n for n in wanted if n not in former], wanted)
    held = holdings.table(table)
    there = held.columns
    if not there:
        return Reckoning()
    # The holdings do not tell whether revisions have rows.
    may_change = held.is_empty and not after.get("revisions")
    retyped = [
        name
        for name, kind in wanted.items()
        if former.get(name, kind) != kind and there.get(name, (kind, True))[0] != kind
    ]
    left = [n for n in former if n not in wanted and n in there]
    demanding = [name for name in left if not there[name][1]]
    findings = [_retyped(table, n, former[n], wanted[n]) for n in retyped]
    findings += [_demanding(table, name) for name in demanding]
    statements: list[sql.Composed] = []
    if may_change:
        findings = [_of_an_empty_table(finding) for finding in findings]
        statements += [change_type(table, name, wanted[name]) for name in retyped]
        statements += [allow_null(table, name) for name in demanding]
    findings += [
        Finding(
            verdict=PlanVerdict.COMPATIBLE,
            subject=f"column {table}.{name}",
            saw="The pipeline no longer writes it.",
            why="The column stays, and is NULL in new rows.",
        )
        for name in left
        if name not in demanding
    ]
    missing = [name for name in wanted if name not in there]
    findings += [
        Finding(
            verdict=PlanVerdict.NEEDS_MIGRATION,
            subject=f"column {table}.{name}",
            saw=f"The table has no column {name}.",
            why="The update adds it; existing rows have NULL in it.",
        )
        for name in missing
    ]
    tables = [table, *([after["revisions"]] if after.get("revisions") else [])]
    return Reckoning(
        findings=tuple(findings),
        statements=(
            *statements,
            *(
                add_column(one, name, wanted[name])
                for one in tables
                for name in missing
            ),
        ),
    )


def add_column(table: str, name: str, kind: str) -> sql.Composed:
    """Add a column to a table, if the table exists and has no such column."""
    return sql.SQL("ALTER TABLE IF EXISTS {} ADD COLUMN IF NOT EXISTS {} {}").format(
        table_identifier(table), sql.Identifier(name), type_name(kind)
    )


def change_type(table: str, name: str, kind: str) -> sql.Composed:
    """Change the type of a column of a table that has no row."""
    return sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {} USING NULL").format(
        table_identifier(table), sql.Identifier(name), type_name(kind)
    )


def allow_null(table: str, name: str) -> sql.Composed:
    """Let a column stay empty."""
    return sql.SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL").format(
        table_identifier(table), sql.Identifier(name)
    )


def _of_an_empty_table(finding: Finding) -> Finding:
    return replace(
        finding,
        verdict=PlanVerdict.NEEDS_MIGRATION,
        why="The table is empty, so the update changes the column.",
        fix="",
        code="",
    )


def _elsewhere(
    table: str, missing: Iterable[str], wanted: Mapping[str, str]
) -> Reckoning:
    return Reckoning(
        findings=tuple(
            Finding(
                verdict=PlanVerdict.NEEDS_MIGRATION,
                subject=f"column {table}.{name}",
                saw=f"{table} is in another database, and has no column {name}.",
                why="The update's transaction reaches only the home database. Add "
                "the column before the update; an extra column does no harm "
                "until then.",
                fix=add_column(table, name, wanted[name]).as_string(None),
            )
            for name in missing
        )
    )


def _retyped(table: str, name: str, had: str, has: str) -> Finding:
    return Finding(
        verdict=PlanVerdict.INCOMPATIBLE,
        code="TABLE_DIFFERS",
        subject=f"column {table}.{name}",
        saw=f"Its type changes from {had} to {has}.",
        why="Existing rows would have to be rewritten.",
        fix=f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {has}, while the pipeline "
        "is paused; or give the column another name.",
    )


def _demanding(table: str, name: str) -> Finding:
    return Finding(
        verdict=PlanVerdict.INCOMPATIBLE,
        code="TABLE_DIFFERS",
        subject=f"column {table}.{name}",
        saw="The pipeline no longer writes it, but it is NOT NULL.",
        why="The table would refuse every new row.",
        fix=f"ALTER TABLE {table} ALTER COLUMN {name} DROP NOT NULL.",
    )
