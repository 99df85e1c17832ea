"""Reads what a home holds of a pipeline: tables, open windows, the state of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.output_kinds import kind_of
from tallyweir.sinks.postgres.outputs.result_tables import read_columns
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.instants import to_microseconds
from tallyweir.sinks.postgres.server.naming import state_table
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.postgres.tables.table_owners import find_other_owner

_SQL = load_statements("tallyweir.sinks.postgres.versions", "holdings.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """A home's holdings of one output.

    Attributes:
        columns: The type of each column of the table, and whether it may stay empty.
        open_rows: Rows of windows that are not final.
        state_columns: Columns of the table of open windows; empty if there is none.
        waiting_rows: Open windows with events that no row shows.
        begun_through_us: No window that has begun begins after it; of sessions, none
            ends after it. None if no window has begun.
        keys: Values and timers that a function or a join keeps.
        other_owner: Another pipeline that owns the table, if one does.
        is_empty: Whether the table exists and has no row.
    """

    columns: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    open_rows: int = 0
    state_columns: tuple[str, ...] = ()
    waiting_rows: int = 0
    begun_through_us: int | None = None
    keys: int = 0
    other_owner: str | None = None
    is_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """A home's holdings of a pipeline.

    Attributes:
        number: The pipeline's number.
        bucket_seconds: How much event time a bucket of its seen IDs covers.
        tables: The tables by name, including those that another version made.
        has_events: Whether anything that was read became more than a dead letter.
    """

    number: int
    bucket_seconds: int
    watermark_us: int | None = None
    tables: Mapping[str, HeldTable] = field(default_factory=dict)
    has_events: bool = True

    def table(self, name: str) -> HeldTable:
        """Return what is held of a table; an empty one if there is no such table."""
        return self.tables.get(name, HeldTable())


def read_holdings(
    connection: Connection[TupleRow],
    pipeline: str,
    *layouts: Mapping[str, Any],
    held: frozenset[str] | None = None,
) -> Holdings:
    """Read the tables of some versions, inside the caller's transaction.

    Args:
        connection: The connection of that transaction.
        pipeline: The pipeline's name.
        layouts: The layouts of the versions.
        held: The quoted names of the tables that may be read; None for all tables.
    """
    number, watermark, bucket_seconds, has_events = fetch_row(
        connection, _SQL["pipeline"], {"pipeline": pipeline}
    )
    outputs = {o["table"]: o for layout in layouts for o in layout["outputs"]}
    return Holdings(
        number=number,
        bucket_seconds=bucket_seconds,
        watermark_us=to_microseconds(watermark),
        tables={
            table: _Reading(connection, pipeline, number, held).read(output)
            for table, output in outputs.items()
            if output["is_home"]
        },
        has_events=has_events,
    )


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads tables of one pipeline."""

    connection: Connection[TupleRow]
    pipeline: str
    number: int
    held: frozenset[str] | None

    def read(self, output: Mapping[str, Any]) -> HeldTable:
        """Read the table of an output."""
        table, kind = output["table"], kind_of(output)
        target = table_identifier(table)
        columns = {
            name: (type_, optional) for name, type_, optional in self._columns(target)
        }
        any_row = _SQL["any_row"].format(target=target)
        held = HeldTable(
            columns=columns,
            keys=self._count_keys(output),
            # Without a table there is nothing that another pipeline could own.
            other_owner=None
            if not kind.has_table
            else find_other_owner(self.connection, self.pipeline, table),
            is_empty=bool(columns) and not fetch_row(self.connection, any_row)[0],
        )
        if not kind.has_windows or not {"window_start", "final"} <= set(columns):
            return held
        return self._with_windows(held, output, target)

    def _with_windows(
        self, held: HeldTable, output: Mapping[str, Any], target: sql.Identifier
    ) -> HeldTable:
        state = state_table(self.number, output["table"])
        state_columns = tuple(name for name, *_ in self._columns(state))
        edge = sql.Identifier(
            "window_end" if "gap_us" in output["windows"] else "window_start"
        )
        open_rows, begun = fetch_row(
            self.connection, _SQL["open_rows"].format(target=target, edge=edge)
        )
        waiting = 0
        if state_columns:
            is_waiting = "tallyweir_waiting_since" in state_columns
            waits = "tallyweir_waiting_since IS NOT NULL" if is_waiting else "false"
            waiting, begun_unseen = fetch_row(
                self.connection,
                _SQL["open_windows"].format(
                    state=state, edge=edge, waits=sql.SQL(waits)
                ),
            )
            begun = max((one for one in (begun, begun_unseen) if one), default=None)
        return replace(
            held,
            open_rows=open_rows,
            state_columns=state_columns,
            waiting_rows=waiting,
            begun_through_us=to_microseconds(begun),
        )

    def _count_keys(self, output: Mapping[str, Any]) -> int:
        if not kind_of(output).keeps_keys:
            return 0
        values = {"pipeline": self.pipeline, "table": output["table"]}
        (keys,) = fetch_row(self.connection, _SQL["kept_keys"], values)
        return int(keys)

    def _columns(self, table: sql.Identifier) -> list[tuple[str, str, bool]]:
        """List (name, type, may stay empty); nothing if the table is not held."""
        if self.held is not None and table.as_string(self.connection) not in self.held:
            return []
        return read_columns(self.connection, table)
