"""Removes the rows of earlier events that the events of an upsert run correct.

Tasks stage the IDs of the events that correct others. Before it writes the batch's own
rows, the publish transaction deletes every row under these IDs from the append tables
and records its position in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import Column, table_identifier
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.postgres.staging.attempt_register import transactions_of
from tallyweir.sinks.protocol.identity import Attempt

_SQL = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_TABLES = load_statements("tallyweir.sinks.postgres.tables", "result_tables.sql")

#: The staging table.
CORRECTION = "correction"


def correction_columns(id_column: Column) -> tuple[Column, ...]:
    """Return the columns that tasks stage for each correction.

    They are the ID as the append tables hold it, the ID as people search for it, and
    whether the pipeline's conditions leave the event out. If they do, no row replaces
    the ones that are deleted.
    """
    return (
        Column(name="id", postgres_type=id_column.postgres_type),
        Column(name="event_id", postgres_type="text"),
        Column(name="is_filtered", postgres_type="boolean"),
    )


class StagedCorrections(NamedTuple):
    """How many corrections were staged, and how many of them no output takes."""

    staged: int
    retracting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """The corrections that a batch's voters have staged.

    Attributes:
        connection: A connection in the publish transaction, or in a transaction that
            looks for refused rows.
        pipeline: The pipeline whose rows may be deleted.
        id_column: The append tables' column that holds the ID.
        tables: Names of the staging tables.
        attempts: The attempts that voted.
    """

    connection: psycopg.Connection[TupleRow]
    pipeline: str
    id_column: Column
    tables: TableNames
    attempts: Sequence[Attempt]

    def count(self) -> StagedCorrections:
        """Count the staged rows, which a crash of the server may have removed."""
        statement = _SQL["count_corrections"].format(staging=self._staging)
        return StagedCorrections(*fetch_row(self.connection, statement, self._values))

    def replace(self, table: str, sequence: object) -> None:
        """Delete the earlier rows from an append table, and record their positions.

        Crash:
            Part of the publish transaction: it is done with the batch, or not at all.
        """
        statement = _SQL["note_replaced"].format(deletion=self._deletion(table))
        place = {"output_table": table, "sequence": sequence}
        self.connection.execute(statement, {**self._values, **place})

    def delete(self, table: str) -> None:
        """Delete the earlier rows, in a transaction that will be rolled back."""
        self.connection.execute(self._deletion(table), self._values)

    @property
    def _staging(self) -> sql.Identifier:
        return self.tables.staging(CORRECTION)

    @property
    def _values(self) -> dict[str, object]:
        return {
            "pipeline": self.pipeline,
            "transactions": transactions_of(
                self.connection, self.tables, self.attempts
            ),
        }

    def _deletion(self, table: str) -> sql.Composed:
        target = table_identifier(table)
        types: dict[str, str] = dict(
            self.connection.execute(
                _TABLES["column_types"], {"table": target.as_string(self.connection)}
            ).fetchall()
        )
        former_id: sql.Composable = sql.Identifier("former", self.id_column.name)
        staged_id: sql.Composable = sql.Identifier("correction", "id")
        if types[self.id_column.name] != self.id_column.postgres_type:
            # The user chose another type for the column, so compare the IDs as text.
            former_id = sql.SQL("{}::text").format(former_id)
            staged_id = sql.SQL("{}::text").format(staged_id)
        return _SQL["delete_corrected"].format(
            target=target, staging=self._staging, former_id=former_id, id=staged_id
        )
