"""Staging: where tasks put a batch's rows before anything is decided.

Staging tables are UNLOGGED and belong to one driver's epoch. There are two sets of
them, used by alternate batches. Every row belongs to the task attempt whose transaction
copied it (``attempt_register``), and publishing moves only the rows of attempts that
voted. So rows of a zombie, of a speculative copy or of a crashed batch can stay here
without harm until their schema is dropped.

A crash of the server empties UNLOGGED tables. Publishing then notices that voted rows
are missing, and the batch is staged again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column, packed, table_identifier
from tallyweir.sinks.postgres.server.connection import DatabaseLink
from tallyweir.sinks.postgres.server.locks import LockAttempts
from tallyweir.sinks.postgres.server.naming import (
    HOME,
    STAGING_SETS,
    staged_for,
    staging_schema,
    staging_table,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.attempt_register import ATTEMPT_COLUMNS, ATTEMPTS
from tallyweir.sinks.postgres.staging.corrections import CORRECTION, correction_columns
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim

_SQL = load_statements("tallyweir.sinks.postgres.staging", "staging.sql")

_EVENT_POSITION = (
    Column(name="kafka_topic", postgres_type="text"),
    Column(name="kafka_partition", postgres_type="integer"),
    Column(name="kafka_offset", postgres_type="bigint"),
)

#: How ``condition`` begins for a record that an envelope knows for no event.
SKIPPED = "skipped: "

#: Staging tables that every pipeline has, with the columns that tasks fill. Each has
#: the name of the table that its rows are moved to.
EVENT_LOGS: Mapping[str, tuple[Column, ...]] = {
    "dead_letter": (
        *_EVENT_POSITION,
        Column(name="kafka_timestamp", postgres_type="timestamp with time zone"),
        Column(name="reason", postgres_type="text"),
        Column(name="detail", postgres_type="text"),
        Column(name="event_id", postgres_type="text"),
        Column(name="key", postgres_type="bytea"),
        Column(name="payload", postgres_type="bytea"),
    ),
    "late_event": (
        Column(name="output_table", postgres_type="text"),
        *_EVENT_POSITION,
        Column(name="event_id", postgres_type="text"),
        Column(name="event_time", postgres_type="timestamp with time zone"),
        Column(name="payload", postgres_type="bytea"),
    ),
    "expired_event": (
        *_EVENT_POSITION,
        Column(name="event_id", postgres_type="text"),
        Column(name="event_time", postgres_type="timestamp with time zone"),
        Column(name="payload", postgres_type="bytea"),
    ),
    "duplicate_event": (
        *_EVENT_POSITION,
        Column(name="event_id", postgres_type="text"),
    ),
    "filtered_event": (
        *_EVENT_POSITION,
        Column(name="event_id", postgres_type="text"),
        Column(name="condition", postgres_type="text"),
    ),
    "seen_id_run": (
        Column(name="bucket", postgres_type="bigint"),
        Column(name="ids", postgres_type="integer"),
        Column(name="first", postgres_type="bytea"),
        Column(name="last", postgres_type="bytea"),
        Column(name="fingerprints", postgres_type="bytea"),
        Column(name="payload_hashes", postgres_type="bytea"),
    ),
}


def staging_tables(
    layout: PipelineLayout, branch: str = HOME
) -> dict[str, tuple[Column, ...]]:
    """List what is staged for one publish transaction, with each table's columns."""
    tables = dict(EVENT_LOGS) if branch == HOME else {}
    if branch == HOME and layout.corrected_by is not None:
        tables[CORRECTION] = correction_columns(layout.corrected_by)
    for output in layout.outputs_of(branch):
        tables[staged_for(output.staging_table, branch)] = output.staging_columns
        tables.update(output.keyed_staging)
    return tables


def append_targets(layout: PipelineLayout, branch: str = HOME) -> dict[str, str]:
    """Map staging tables to the result tables that take their rows unchanged."""
    return {
        staged_for(output.staging_table, branch): output.table
        for output in layout.outputs_of(branch)
        if output.takes_staged_rows
    }


def create_staging(
    connection: psycopg.Connection[TupleRow],
    tables: Mapping[str, Sequence[Column]],
    *,
    pipeline_number: int,
    epoch: Epoch,
    installation: str | None = None,
) -> None:
    """Create the staging tables of an epoch, with their columns in the given order.

    The caller commits.
    """
    name = staging_schema(pipeline_number, epoch, installation=installation)
    schema = sql.Identifier(name)
    # A schema of this name is left from a ledger that no longer exists, because no
    # other driver has this claim.
    connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
    all_tables = {ATTEMPTS: ATTEMPT_COLUMNS, **tables}
    for number, (table, columns) in product(range(STAGING_SETS), all_tables.items()):
        target = staging_table(
            pipeline_number, epoch, table, sequence=number, installation=installation
        )
        definitions = sql.SQL(", ").join(
            column.staging_definition for column in columns
        )
        # The tables are emptied by TRUNCATE only, so vacuum has nothing to do here.
        connection.execute(
            sql.SQL(
                "CREATE UNLOGGED TABLE {} ({}) WITH (autovacuum_enabled = false)"
            ).format(target, definitions)
        )


def arranged(
    connection: psycopg.Connection[TupleRow],
    columns: tuple[Column, ...],
    target: str | None,
) -> Sequence[Column]:
    """Put a staging table's columns into the order from which rows move fastest.

    If they are exactly those of the target, in its order, Postgres moves each row
    whole; otherwise it takes each row apart.

    Args:
        connection: A connection to the database of both tables.
        columns: The staging table's columns.
        target: The table that takes the rows unchanged, if there is one.
    """
    if target is None:
        return packed(columns)
    quoted = table_identifier(target).as_string(connection)
    order = connection.execute(_SQL["columns_in_order"], {"table": quoted}).fetchall()
    staged = {(column.name, column.staging_type): column for column in columns}
    if set(order) != set(staged):
        return packed(columns)
    return [staged[name, kind] for name, kind in order]


_CLAIM = load_statements("tallyweir.sinks.postgres.ledger", "claim.sql")

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
                _CLAIM["staging_schemas"], {"pattern": f"^{prefix}[0-9]+$"}
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
                _CLAIM["drop_staging"].format(schema=sql.Identifier(schema))
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
