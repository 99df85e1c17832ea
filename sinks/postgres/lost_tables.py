"""Finds result tables whose rows are gone, before they are made again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.columns import qualified, table_identifier
from sinks.postgres.home_layout import Output
from sinks.postgres.statements import load_statements
from sinks.protocol.errors import ConfigurationError
from sinks.protocol.in_doubt import Claim

_SQL = load_statements("sinks.postgres", "lost_tables.sql")

_Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRows:
    """Rows that a table should hold by the ledger, and does not.

    Attributes:
        is_there: Whether the table is there, without a row.
        rows: How many they are; of windows, how often batches changed one.
        batches: That brought them.
    """

    table: str
    is_there: bool
    rows: int
    batches: int

    def told(self) -> str:
        """Say what is gone."""
        what = "is empty" if self.is_there else "does not exist"
        return (
            f"Table {qualified(self.table)} {what}; by the ledger {self.batches} "
            f"batches brought {self.rows} rows into it that should be there."
        )


def find_lost(
    connection: _Connection, pipeline: str, table: str, *, kind: str
) -> LostRows | None:
    """Find out whether the rows of an output in the home are gone.

    Of windows an empty table says nothing: they may all wait to be shown.
    """
    is_there = _is_there(connection, table)
    if is_there and (kind == "window" or _has_rows(connection, table)):
        return None
    row = connection.execute(
        _SQL["owed"], {"pipeline": pipeline, "output_table": table}
    ).fetchone()
    assert row is not None
    rows, batches = row
    if rows <= 0:
        return None
    return LostRows(table=table, is_there=is_there, rows=int(rows), batches=batches)


def check_not_lost(
    connection: _Connection, pipeline: str, outputs: Iterable[Output]
) -> None:
    """Refuse to go on with tables of the home whose rows are gone.

    Raises:
        ConfigurationError: ``TABLE_LOST``.
    """
    for output in outputs:
        if not output.tables:
            continue
        lost = find_lost(connection, pipeline, output.table, kind=output.kind)
        if lost is not None:
            raise ConfigurationError(
                "TABLE_LOST",
                saw=lost.told(),
                why="Made again or filled further, it would look as if nothing were "
                "missing.",
                fix="Restore it from a backup; or compute what it held: tallyweir "
                f"verify {pipeline} --replay; or accept the loss: tallyweir "
                f"accept-loss {pipeline} {output.table} --reason TEXT.",
            )


def check_not_lost_beside(
    connection: _Connection,
    claim: Claim,
    known: Iterable[str],
    outputs: Iterable[Output],
) -> None:
    """Refuse to make a table again in a database beside the home.

    Args:
        connection: To that database.
        claim: The driver's.
        known: Tables that the pipeline has had there before, as ``schema.table``.
        outputs: Those that publish there.

    Raises:
        ConfigurationError: ``TABLE_LOST``.
    """
    had = set(known)
    for output in outputs:
        if qualified(output.table) not in had or _is_there(connection, output.table):
            continue
        row = connection.execute(
            _SQL["marked"],
            {
                "installation": claim.installation,
                "pipeline_number": claim.pipeline_number,
                "branches": list(output.branches),
            },
        ).fetchone()
        assert row is not None
        rows, batches = row
        if rows:
            raise ConfigurationError(
                "TABLE_LOST",
                saw=f"Table {qualified(output.table)} does not exist in database "
                f"{connection.info.dbname}; {batches} batches brought {rows} rows into "
                "it and the tables beside it.",
                why="Made again, it would look as if nothing were missing.",
                fix="Restore it from a backup, or give the output another table.",
            )


def accept_lost(
    connection: _Connection, pipeline: str, lost: LostRows, *, through: int, reason: str
) -> None:
    """Note that rows of all batches so far are given up; the caller commits."""
    connection.execute(
        _SQL["accept"],
        {
            "pipeline": pipeline,
            "output_table": lost.table,
            "through_sequence": through,
            "rows": lost.rows,
            "reason": reason,
        },
    )


def forget_windows(connection: _Connection, state: sql.Identifier) -> None:
    """Let the windows of a lost table that are open begin again from nothing."""
    if _exists(connection, state):
        connection.execute(_SQL["forget_windows"].format(state=state))


def _is_there(connection: _Connection, table: str) -> bool:
    return _exists(connection, table_identifier(table))


def _exists(connection: _Connection, table: sql.Identifier) -> bool:
    name = table.as_string(connection)
    row = connection.execute(_SQL["is_there"], {"table": name}).fetchone()
    assert row is not None
    return bool(row[0])


def _has_rows(connection: _Connection, table: str) -> bool:
    statement = _SQL["has_rows"].format(table=table_identifier(table))
    row = connection.execute(statement).fetchone()
    assert row is not None
    return bool(row[0])
