"""Finds result tables whose rows are gone, before they are created again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.output_kinds import OutputKind
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import (
    is_there,
    qualified,
    table_identifier,
)
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.in_doubt import EpochClaim

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "lost_tables.sql")

_Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRows:
    """Rows that the ledger counts for a table and that the table does not hold.

    Attributes:
        is_there: Whether the table exists, without a row.
        rows: The number of rows; for windows, how often batches changed one.
        batches: The number of batches that brought them.
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
    connection: _Connection,
    pipeline: str,
    table: str,
    *,
    kind: OutputKind,
    is_there: bool,
) -> LostRows | None:
    """Find out whether the rows of an output, which is in one database, are gone.

    An empty table proves nothing where the kind lets it stay empty: all windows may
    still wait to be shown.

    Args:
        connection: To the home, inside of a transaction.
        pipeline: The pipeline's name.
        table: The output's table.
        kind: The output's kind.
        is_there: Whether the table exists; a missing table is not read.
    """
    if is_there and (kind.may_stay_empty or _has_rows(connection, table)):
        return None
    owed = _read_owed(connection, pipeline, table)
    if owed is None:
        return None
    rows, batches = owed
    return LostRows(table=table, is_there=is_there, rows=rows, batches=batches)


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
        lost = find_lost(
            connection,
            pipeline,
            output.table,
            kind=output.kind,
            is_there=is_there(connection, table_identifier(output.table)),
        )
        if lost is not None:
            raise ConfigurationError(
                "TABLE_LOST",
                saw=lost.told(),
                why="If the driver recreated it or added rows, the loss would go "
                "unnoticed.",
                fix="Restore it from a backup; or compute what it held: tallyweir "
                f"verify {pipeline} --replay; or accept the loss: tallyweir "
                f"accept-loss {pipeline} {output.table} --reason TEXT.",
            )


def check_not_lost_beside(
    connection: _Connection,
    layout: PipelineLayout,
    claim: EpochClaim,
    known: Iterable[str],
    outputs: Iterable[Output],
) -> list[str]:
    """Refuse to create a lost table again in a database other than the home.

    The ledger says whether the table should hold rows, as ``accept_loss`` asks it. If
    the table is in several databases, the markers say whether this one may have held
    the rows.

    Args:
        connection: To that database.
        layout: The pipeline's layout, as the home has it.
        claim: The driver's claim of its epoch.
        known: Tables that the pipeline has had there before, as ``schema.table``.
        outputs: The outputs that are published there.

    Returns:
        The tables that are gone, but miss no rows.

    Raises:
        ConfigurationError: ``TABLE_LOST``.
    """
    had = set(known)
    gone = [
        output
        for output in outputs
        if qualified(output.table) in had
        and not is_there(connection, table_identifier(output.table))
    ]
    for output in gone:
        (marked,) = fetch_row(
            connection,
            _SQL["marked"],
            {
                "installation": claim.installation,
                "pipeline_number": claim.pipeline_number,
                "branches": list(output.branches),
            },
        )
        owed = layout.owed.get(output.table)
        if owed is not None and marked:
            rows, batches = owed
            raise ConfigurationError(
                "TABLE_LOST",
                saw=f"Table {qualified(output.table)} does not exist in database "
                f"{connection.info.dbname}; by the ledger {batches} batches brought "
                f"{rows} rows into this output that should be there.",
                why="If the driver recreated it, the loss would go unnoticed.",
                fix="Restore it from a backup; or, if it is in this database only, "
                f"accept the loss: tallyweir accept-loss {layout.pipeline} "
                f"{output.table} --reason TEXT; or give the output another table.",
            )
    return [output.table for output in gone]


def read_owed(
    connection: _Connection, pipeline: str, outputs: Iterable[Output]
) -> dict[str, tuple[int, int]]:
    """Return the rows and batches that the ledger counts for each table with any."""
    owed = {one.table: _read_owed(connection, pipeline, one.table) for one in outputs}
    return {table: counted for table, counted in owed.items() if counted is not None}


def accept_lost(
    connection: _Connection, pipeline: str, lost: LostRows, *, through: int, reason: str
) -> None:
    """Record that rows of all batches so far are given up; the caller commits."""
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
    """Delete the state of a lost table's open windows, so that they start empty.

    There is no state if the output has no windows, or if no driver has created the
    state table yet.
    """
    if is_there(connection, state):
        connection.execute(_SQL["forget_windows"].format(state=state))


def _read_owed(
    connection: _Connection, pipeline: str, table: str
) -> tuple[int, int] | None:
    """Return rows and batches that the ledger counts for a table; None if no rows."""
    rows, batches = fetch_row(
        connection, _SQL["owed"], {"pipeline": pipeline, "output_table": table}
    )
    return (int(rows), int(batches)) if rows > 0 else None


def _has_rows(connection: _Connection, table: str) -> bool:
    statement = _SQL["has_rows"].format(table=table_identifier(table))
    return bool(fetch_row(connection, statement)[0])
