"""What a home holds of a pipeline: tables, open windows, state of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from sinks.postgres.columns import table_identifier
from sinks.postgres.instants import to_microseconds
from sinks.postgres.naming import state_table
from sinks.postgres.statements import load_statements
from sinks.postgres.table_owners import find_other_owner

_SQL = load_statements("sinks.postgres.versions", "holdings.sql")
_TABLES = load_statements("sinks.postgres", "result_tables.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """What a home holds of one output.

    Attributes:
        columns: Type of each column of the table, and whether it may stay empty.
        open_rows: Rows of windows that are not final.
        state_columns: Of the table of open windows; empty if there is none.
        waiting_rows: Open windows with events that no row shows.
        begun_through_us: No window that has begun begins after it; of sessions, none
            ends after it. None if none has begun.
        keys: Values and timers that a function or a join keeps.
        other_owner: Another pipeline that the table belongs to, if one does.
        is_empty: The table is there and has no row.
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
    """What a home holds of a pipeline.

    Attributes:
        number: The pipeline's.
        bucket_seconds: How much event time a bucket of its seen IDs covers.
        tables: By name, also those that another version made.
        has_events: Something that was read became more than a dead letter.
    """

    number: int
    bucket_seconds: int
    watermark_us: int | None = None
    tables: Mapping[str, HeldTable] = field(default_factory=dict)
    has_events: bool = True

    def table(self, name: str) -> HeldTable:
        """Return what there is of a table; nothing where there is none."""
        return self.tables.get(name, HeldTable())


def read_holdings(
    connection: Connection[TupleRow], pipeline: str, *layouts: Mapping[str, Any]
) -> Holdings:
    """Look at the tables of some versions, inside of the caller's transaction."""
    row = connection.execute(_SQL["pipeline"], {"pipeline": pipeline}).fetchone()
    assert row is not None
    number, watermark, bucket_seconds, has_events = row
    outputs = {o["table"]: o for layout in layouts for o in layout["outputs"]}
    return Holdings(
        number=number,
        bucket_seconds=bucket_seconds,
        watermark_us=to_microseconds(watermark),
        tables={
            table: _read_table(connection, pipeline, number, output)
            for table, output in outputs.items()
            if output["is_home"]
        },
        has_events=has_events,
    )


def _read_table(
    connection: Connection[TupleRow],
    pipeline: str,
    number: int,
    output: Mapping[str, Any],
) -> HeldTable:
    table = output["table"]
    target = table_identifier(table)
    columns = {
        name: (kind, optional) for name, kind, optional in _columns(connection, target)
    }
    # No table has the name of an outbox.
    other_owner = (
        None
        if output["kind"] == "outbox"
        else find_other_owner(connection, pipeline, table)
    )
    is_empty = False
    if columns:
        is_empty = (
            connection.execute(_SQL["any_row"].format(target=target)).fetchone() is None
        )
    keys = 0
    if output["kind"] == "stateful":
        values = {"pipeline": pipeline, "table": table}
        row = connection.execute(_SQL["kept_keys"], values).fetchone()
        assert row is not None
        (keys,) = row
    if output["kind"] != "window" or not {"window_start", "final"} <= columns.keys():
        return HeldTable(
            columns=columns, keys=keys, other_owner=other_owner, is_empty=is_empty
        )
    state = state_table(number, table)
    state_columns = tuple(name for name, *_ in _columns(connection, state))
    edge = sql.Identifier(
        "window_end" if "gap_us" in output["windows"] else "window_start"
    )
    shown = connection.execute(
        _SQL["open_rows"].format(target=target, edge=edge)
    ).fetchone()
    assert shown is not None
    open_rows, begun = shown
    waiting = 0
    if state_columns:
        is_waiting = "tallyweir_waiting_since" in state_columns
        kept = connection.execute(
            _SQL["open_windows"].format(
                state=state,
                edge=edge,
                waits=sql.SQL(
                    "tallyweir_waiting_since IS NOT NULL" if is_waiting else "false"
                ),
            )
        ).fetchone()
        assert kept is not None
        waiting, begun_unseen = kept
        begun = max((one for one in (begun, begun_unseen) if one), default=None)
    return HeldTable(
        columns=columns,
        open_rows=open_rows,
        state_columns=state_columns,
        waiting_rows=waiting,
        begun_through_us=to_microseconds(begun),
        other_owner=other_owner,
        is_empty=is_empty,
    )


def _columns(
    connection: Connection[TupleRow], table: sql.Identifier
) -> list[tuple[str, str, bool]]:
    quoted = table.as_string(connection)
    rows = connection.execute(_TABLES["read_columns"], {"table": quoted}).fetchall()
    return [(name, kind, optional) for name, kind, optional in rows]
