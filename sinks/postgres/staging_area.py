"""The staging schemas of one pipeline in one database: made, emptied, dropped."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.columns import Column
from sinks.postgres.naming import staging_schema
from sinks.postgres.output_moves import TableNames
from sinks.postgres.session import Session
from sinks.postgres.staging import create_staging
from sinks.postgres.statements import load_statements
from sinks.protocol.errors import RetryableError
from sinks.protocol.identity import Epoch

_SQL = load_statements("sinks.postgres", "claim.sql")

#: Staging is emptied once it holds this many rows. Small batches leave their rows
#: lying, because a TRUNCATE costs more than skipping them.
STAGED_ROWS_KEPT = 50_000


class StagingArea:
    """What one driver stages in one database.

    Args:
        session: To that database.
        names: Of the driver's tables there.
        tables: The staging tables and their columns.
    """

    def __init__(
        self,
        session: Session,
        names: TableNames,
        tables: Mapping[str, tuple[Column, ...]],
    ) -> None:
        self._session = session
        self._names = names
        self._tables = tables
        self._rows = 0

    def create(self, connection: psycopg.Connection[TupleRow]) -> None:
        """Create the tables, empty; the caller commits."""
        create_staging(
            connection,
            self._tables,
            pipeline_number=self._names.pipeline_number,
            epoch=Epoch(self._names.epoch),
            installation=self._names.installation,
        )

    def note_published(self, staged: Mapping[str, int]) -> None:
        """Remember that rows, counted by table, are of no use here any more."""
        self._rows += sum(staged.get(table, 0) for table in self._tables)

    def tidy(self) -> None:
        """Empty the tables when enough lies in them.

        Raises:
            RetryableError: Someone else has a lock on them; they stay until next time.
        """
        if self._rows > STAGED_ROWS_KEPT:
            self._session.run("emptying staging", self._truncate)
            self._rows = 0

    def drop_superseded(self) -> None:
        """Drop staging of older epochs; one that is locked waits for a later start.

        Newer ones stay: a driver that is superseded while it starts would take the
        tables from under its successor. What a restore left behind under a number
        that is yet to come goes when its turn comes.
        """
        own = staging_schema(
            self._names.pipeline_number,
            self._names.epoch,
            installation=self._names.installation,
        )
        prefix = own.removesuffix(str(self._names.epoch))

        def find(connection: psycopg.Connection[TupleRow]) -> list[str]:
            rows = connection.execute(
                _SQL["staging_schemas"], {"pattern": f"^{prefix}[0-9]+$"}
            ).fetchall()
            epochs = [int(row[0].removeprefix(prefix)) for row in rows]
            return [f"{prefix}{epoch}" for epoch in epochs if epoch < self._names.epoch]

        for schema in self._session.run("looking for old staging", find):
            try:
                self._drop(schema)
            except RetryableError:
                continue

    def _drop(self, schema: str) -> None:
        def drop(connection: psycopg.Connection[TupleRow]) -> None:
            connection.execute("SET LOCAL lock_timeout = '1s'")
            connection.execute(
                _SQL["drop_staging"].format(schema=sql.Identifier(schema))
            )

        self._session.run("dropping old staging", drop)

    def _truncate(self, connection: psycopg.Connection[TupleRow]) -> None:
        tables = sql.SQL(", ").join(map(self._names.staging, self._tables))
        connection.execute("SET LOCAL lock_timeout = '1s'")
        connection.execute(sql.SQL("TRUNCATE {}").format(tables))
