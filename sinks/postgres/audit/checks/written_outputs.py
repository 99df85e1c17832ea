"""An output's tables, as the versions of a pipeline recorded them.

A former version may have written other columns, and its rows are still in the table. So
the digest of a row covers the columns of all versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import WINDOW_END, WINDOW_START
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.versions.held_knowledge import HeldKnowledge, HeldWindows

_VALUES = load_statements("tallyweir.sinks.postgres.audit.checks", "row_values.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldVersion:
    """One version's record of one output."""

    from_sequence: int
    layout: Mapping[str, Any]
    held: HeldWindows

    @property
    def columns(self) -> tuple[Column, ...]:
        return _columns(self.layout.get("columns", ()))

    @property
    def closed_through(self) -> datetime | None:
        """Windows that end by this time were final under an earlier version."""
        return to_datetime(self.held.closed_through_us)


@dataclass(frozen=True)
class WrittenOutput:
    """An output's tables, as one or more versions write them.

    Attributes:
        versions: The versions that have the output, oldest first; never empty.
    """

    versions: tuple[ToldVersion, ...]

    @property
    def newest(self) -> Mapping[str, Any]:
        return self.versions[-1].layout

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Every column that any version writes, with the type in the newest one."""
        by_name = {c.name: c for version in self.versions for c in version.columns}
        return tuple(by_name.values())

    @property
    def discards(self) -> bool:
        return bool(self.newest.get("discards"))

    @property
    def waits(self) -> bool:
        return bool(self.newest.get("waits"))

    @property
    def keys(self) -> tuple[Column, ...]:
        """The columns that identify a window."""
        return _columns(self.newest["keys"])

    @property
    def shown_by_state(self) -> list[tuple[Column, sql.Composable]] | None:
        """As in ``WindowTable``; None if no driver has recorded the functions."""
        aggregates = self.newest["aggregates"]
        if not all("function" in one for one in aggregates):
            return None
        keys = (WINDOW_START, WINDOW_END, *self.keys[1:])
        held = self.versions[-1].held.known_after_us
        found = [_aggregate(one, held) for one in aggregates]
        return [
            *((column, sql.Identifier(column.name)) for column in keys),
            *((aggregate.column, aggregate.final) for aggregate in found),
        ]

    def version_at(self, sequence: int) -> ToldVersion:
        """Return the version that published a batch, or the oldest recorded one."""
        told = [v for v in self.versions if v.from_sequence < sequence]
        return told[-1] if told else self.versions[0]


def read_written_outputs(
    connection: Connection[TupleRow], pipeline: str
) -> dict[str, WrittenOutput]:
    """Read what is recorded of each table, inside the caller's snapshot of the home."""
    told: dict[str, list[ToldVersion]] = {}
    for row in fetch(connection, _VALUES["versions"], pipeline=pipeline):
        for table, version in _versions_of(row):
            told.setdefault(table, []).append(version)
    return {table: WrittenOutput(tuple(versions)) for table, versions in told.items()}


def _versions_of(row: DictRow) -> Iterable[tuple[str, ToldVersion]]:
    held = HeldKnowledge.from_json(row["held"]).windows
    for layout in row["layout"]["outputs"]:
        table = layout["table"]
        yield (
            table,
            ToldVersion(
                from_sequence=row["from_sequence"],
                layout=layout,
                held=held.get(table, HeldWindows()),
            ),
        )


def _aggregate(told: Mapping[str, Any], held: Mapping[str, int]) -> WindowAggregate:
    return WindowAggregate(
        column=Column(name=told["column"], postgres_type=told["type"]),
        function=AggregateFunction(told["function"]),
        number=told["number"],
        # Only the names of the partials are read.
        partial_type=told["type"],
        known_after_us=held.get(told["column"]),
    )


def _columns(told: Iterable[Iterable[str]]) -> tuple[Column, ...]:
    return tuple(Column(name=name, postgres_type=kind) for name, kind in told)
