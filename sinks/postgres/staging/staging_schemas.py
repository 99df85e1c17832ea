"""Creates, empties and drops the staging schemas of one pipeline in one database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.database_link import DatabaseLink
from tallyweir.sinks.postgres.server.lock_attempts import LockAttempts
from tallyweir.sinks.postgres.server.naming import (
    STAGING_SETS,
    staging_schema,
    staging_table,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.attempt_register import ATTEMPTS
from tallyweir.sinks.postgres.staging.staging_tables import (
    append_targets,
    arranged,
    create_staging,
    staging_tables,
)
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.in_doubt import EpochClaim

_SQL = load_statements("tallyweir.sinks.postgres.ledger", "claim.sql")

#: Staging is emptied once it holds more rows than this. Small batches leave their rows
#: in place, because a TRUNCATE costs more than skipping them.
STAGED_ROWS_KEPT = 50_000


class StagingSchemas:
    """What one driver stages in one database.

    Args:
        link: The link to that database.
        layout: The pipeline's tables.
        branches: The branches whose rows are staged here.
        claim: The driver's claim.
        is_home: Whether it is the home database.
    """

    def __init__(
        self,
        link: DatabaseLink,
        *,
        layout: PipelineLayout,
        branches: Sequence[str],
        claim: EpochClaim,
        is_home: bool,
    ) -> None:
        self._link = link
        self._emptying = LockAttempts(link)
        self._pipeline_number = claim.pipeline_number
        self._epoch = claim.epoch
        self._tables: dict[str, tuple[Column, ...]] = {}
        self._targets: dict[str, str] = {}
        for branch in branches:
            self._tables |= staging_tables(layout, branch)
            self._targets |= append_targets(layout, branch)
        self._installation = None if is_home else claim.installation
        #: For each set, the number of rows by table that are no longer needed.
        self._rows: list[Counter[str]] = [Counter() for _ in range(STAGING_SETS)]
        self._newest = 0

    def create(self, connection: psycopg.Connection[TupleRow]) -> None:
        """Create empty tables, once the result tables exist; the caller commits."""
        create_staging(
            connection,
            {
                table: arranged(connection, columns, self._targets.get(table))
                for table, columns in self._tables.items()
            },
            pipeline_number=self._pipeline_number,
            epoch=self._epoch,
            installation=self._installation,
        )

    def note_published(
        self, sequence: int, staged: Mapping[str, int], *, attempts: int
    ) -> None:
        """Remember that a batch's rows, counted by table, are no longer needed.

        Each attempt has a row in the register, even if it has no other rows.
        """
        self._newest = sequence % STAGING_SETS
        rows = self._rows[self._newest]
        rows.update({table: staged.get(table, 0) for table in self._tables})
        rows[ATTEMPTS] += attempts

    def tidy(self) -> None:
        """Empty the filled tables of the set published last, if it has enough rows.

        The other set may already hold the next batch, so it is left alone, even if it
        could not be emptied after its own batch. Empty tables are left alone too,
        because TRUNCATE would give each of them new files.

        If another transaction has a lock on them, the tables stay as they are, until
        the next batch of this set that comes a minute later or more.

        Raises:
            RetryableError: The server is unreachable.
        """
        rows = self._rows[self._newest]
        if rows.total() > STAGED_ROWS_KEPT and self._emptying.run(
            "emptying staging", partial(self._truncate, self._newest)
        ):
            rows.clear()

    def drop_superseded(self) -> None:
        """Drop staging of older epochs; if it is locked, a later start drops it.

        Staging of newer epochs stays: otherwise a driver that is superseded while it
        starts would drop its successor's tables. A restore may leave staging of an
        epoch that is yet to come; the claim of that epoch drops it.
        """
        own = staging_schema(
            self._pipeline_number, self._epoch, installation=self._installation
        )
        prefix = own.removesuffix(str(self._epoch))

        def find(connection: psycopg.Connection[TupleRow]) -> list[str]:
            rows = connection.execute(
                _SQL["staging_schemas"], {"pattern": f"^{prefix}[0-9]+$"}
            ).fetchall()
            epochs = [int(row[0].removeprefix(prefix)) for row in rows]
            return [f"{prefix}{epoch}" for epoch in epochs if epoch < self._epoch]

        for schema in self._link.run("looking for old staging", find):
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

        self._link.run("dropping old staging", drop)

    def _truncate(self, number: int, connection: psycopg.Connection[TupleRow]) -> None:
        tables = sql.SQL(", ").join(
            staging_table(
                self._pipeline_number,
                self._epoch,
                table,
                sequence=number,
                installation=self._installation,
            )
            for table, rows in self._rows[number].items()
            if rows
        )
        connection.execute(sql.SQL("TRUNCATE {}").format(tables))
