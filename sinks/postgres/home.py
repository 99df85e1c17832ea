"""The home database of one pipeline, as one driver uses it: the ``Home`` port."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.connection import connect
from sinks.postgres.instants import to_microseconds
from sinks.postgres.naming import (
    application_name,
    bucket_of_runs,
    runs_of_bucket,
    runs_of_pipeline,
    staging_schema,
    staging_table,
)
from sinks.postgres.outputs import AppendTable, HomeLayout
from sinks.postgres.publish import (
    PublishTransaction,
    RowRefusedError,
    StagedPublication,
)
from sinks.postgres.rejections import RejectionSearch
from sinks.postgres.result_tables import create_result_tables
from sinks.postgres.sqlstate import translate, translated
from sinks.postgres.staging import create_staging, staging_tables
from sinks.postgres.statements import load_statements
from sinks.postgres.stored_state import read_stored_progress
from sinks.protocol.decisions import PublishOutcome
from sinks.protocol.errors import (
    ConfigurationError,
    OutcomeUnknownError,
    RetryableError,
)
from sinks.protocol.identity import Epoch
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.ports import BatchPlan, Progress, RejectedRow, RowsRejectedError
from sinks.protocol.votes import BatchTally

_CLAIM = load_statements("sinks.postgres", "claim.sql")
_PUBLISH = load_statements("sinks.postgres", "publish.sql")
_RUNS = load_statements("sinks.postgres", "runs.sql")

#: Staging is emptied once it holds this many rows. Small batches leave their rows
#: lying, because a TRUNCATE costs more than skipping them.
STAGED_ROWS_KEPT = 50_000

_T = TypeVar("_T")


class PostgresHome:
    """One driver's view of its pipeline's home database.

    Holds one connection, opened anew after a failure. Not for use by several
    threads at once.
    """

    def __init__(self, dsn: str, layout: HomeLayout) -> None:
        self._dsn = dsn
        self._layout = layout
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._epoch = Epoch(0)
        self._claimed_at: datetime | None = None
        self._pipeline_number = 0
        self._buckets: set[int] = set()
        self._staged_rows = 0

    @property
    def pipeline_number(self) -> int:
        """The pipeline's number, once an epoch is claimed."""
        return self._pipeline_number

    def claim_epoch(self) -> Epoch:
        """Register the pipeline, create its tables and fence every older driver.

        Raises:
            ConfigurationError: A table exists with other columns, the role lacks a
                privilege, or the pipeline was registered with other shards.
            RetryableError: The server is unreachable, or an older driver's publish
                transaction does not end.

        Crash:
            Before the commit nothing happened. After it the epoch is spent, and the
            next start claims another.
        """

        def claim(connection: psycopg.Connection[TupleRow]) -> Epoch:
            values = {
                "pipeline": self._layout.pipeline,
                "definition": self._layout.definition,
                "definition_hash": self._layout.definition_hash,
                "shards": self._layout.shards,
                "bucket_seconds": self._layout.bucket_seconds,
            }
            self._register(connection, values)
            epoch = self._insert_claim(connection)
            # Whoever publishes holds this row. Once we have had it, an older driver
            # can only come after us, and then it finds our claim.
            connection.execute(_PUBLISH["begin_settings"])
            connection.execute(_PUBLISH["lock_pipeline"], values)
            connection.execute(_CLAIM["update_definition"], values)
            create_staging(connection, self._layout, self._pipeline_number, epoch)
            connection.commit()
            return epoch

        self._epoch = self._run("claiming an epoch", claim)
        self._buckets = self._run("reading the catalog", self._known_buckets)
        self._drop_superseded_staging()
        return self._epoch

    def read_progress(self) -> Progress:
        """Read where the pipeline stands.

        Raises:
            RetryableError: The server is unreachable.
        """

        def read(connection: psycopg.Connection[TupleRow]) -> Progress:
            return read_stored_progress(connection, self._layout.pipeline)

        return self._run("reading the pipeline's progress", read)

    def register_positions(
        self, topic_id: str, starts: Mapping[TopicPartition, int]
    ) -> None:
        """Note where partitions begin that the pipeline has not read before.

        Crash:
            Either all are noted or none; a noted position is only a beginning, so
            the next start finds what this one would have done.
        """

        def register(connection: psycopg.Connection[TupleRow]) -> None:
            for topic_partition, offset in starts.items():
                connection.execute(
                    _CLAIM["register_position"],
                    {
                        "pipeline": self._layout.pipeline,
                        "topic": topic_partition.topic,
                        "partition": topic_partition.partition,
                        "topic_id": topic_id,
                        "next_offset": offset,
                    },
                )

        self._run("registering positions", register)

    def read_clock_us(self) -> int:
        """Return the server's time, which all our instants are taken from."""

        def read(connection: psycopg.Connection[TupleRow]) -> datetime:
            row = connection.execute(_CLAIM["server_clock"]).fetchone()
            assert row is not None
            instant: datetime = row[0]
            return instant

        return to_microseconds(self._run("reading the clock", read))

    def publish(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> PublishOutcome:
        """Publish a batch in one transaction; see ``Home.publish`` for the errors.

        Crash:
            Before the server has logged the COMMIT: nothing of the batch is visible,
            its offsets included, so the next driver reads it again. After: all of it
            is, and the next driver starts behind it.
        """
        self._create_buckets(tally.buckets)
        with translated("publishing"):
            connection = self._connected()
        transaction = PublishTransaction(
            connection,
            self._layout,
            StagedPublication(plan=plan, tally=tally, restagings=restagings),
            pipeline_number=self._pipeline_number,
            claimed_at=self._claimed_at,
        )
        try:
            outcome = transaction.run()
        except RowRefusedError as error:
            connection.rollback()
            rejected = self._find_rejected(tally)
            if not rejected:
                # No single row is to blame, so staging again would not help.
                raise translate(error.cause, doing="publishing a batch") from error
            raise RowsRejectedError(rejected) from error
        except psycopg.Error as error:
            self._discard(connection)
            raise translate(error, doing="publishing a batch") from error
        except BaseException:
            connection.rollback()
            raise
        self._commit(connection)
        self._staged_rows += sum(tally.staged.values())
        return outcome

    def tidy(self, *, live_from_us: int | None) -> None:
        """Forget what no batch needs any more; best effort, and safe at any time.

        Drops the seen-ID buckets that end at or before ``live_from_us`` and empties
        staging. A lock that another session holds makes it give up until next time.
        """
        try:
            if live_from_us is not None:
                self._drop_buckets(live_from_us)
            if self._staged_rows > STAGED_ROWS_KEPT:
                self._run("emptying staging", self._truncate_staging)
                self._staged_rows = 0
        except RetryableError:
            return

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _register(
        self,
        connection: psycopg.Connection[TupleRow],
        values: Mapping[str, object],
    ) -> None:
        connection.execute(_PUBLISH["begin_settings"])
        connection.execute(_CLAIM["register_pipeline"], values)
        row = connection.execute(_CLAIM["read_pipeline"], values).fetchone()
        assert row is not None
        self._pipeline_number, shards, bucket_seconds = row
        if (shards, bucket_seconds) != (
            self._layout.shards,
            self._layout.bucket_seconds,
        ):
            raise ConfigurationError(
                "CATALOG_CHANGED",
                saw=f"The pipeline's seen IDs are filed in {shards} shards and "
                f"buckets of {bucket_seconds} s; its definition now asks for "
                f"{self._layout.shards} and {self._layout.bucket_seconds} s.",
                why="IDs that were seen would not be found any more.",
                fix="Keep deduplicate.horizon as it was, or give the pipeline "
                "another name.",
            )
        connection.execute(
            _CLAIM["create_pipeline_runs"].format(
                runs=sql.Identifier(
                    "tallyweir", runs_of_pipeline(self._pipeline_number)
                ),
                pipeline=sql.Literal(self._layout.pipeline),
            )
        )
        create_result_tables(connection, self._layout, self._pipeline_number)
        connection.commit()

    def _insert_claim(self, connection: psycopg.Connection[TupleRow]) -> Epoch:
        values = {
            "pipeline": self._layout.pipeline,
            "host": socket.gethostname(),
            "process_id": os.getpid(),
        }
        while True:
            row = connection.execute(_CLAIM["claim_epoch"], values).fetchone()
            connection.commit()
            if row is not None:
                epoch, self._claimed_at = row
                return Epoch(epoch)
            # Another driver took that very number; it is now visible to us.

    def _known_buckets(self, connection: psycopg.Connection[TupleRow]) -> set[int]:
        rows = connection.execute(
            _RUNS["bucket_tables"],
            {"pipeline_runs": runs_of_pipeline(self._pipeline_number)},
        )
        return {bucket_of_runs(row[0]) for row in rows}

    def _create_buckets(self, buckets: Iterable[int]) -> None:
        """Make the catalog's partitions before the batch needs them.

        Crash:
            An empty partition stays behind, which is what the next batch wants.
        """

        def create(connection: psycopg.Connection[TupleRow]) -> None:
            connection.execute(_PUBLISH["begin_settings"])
            for bucket in missing:
                connection.execute(
                    _RUNS["create_bucket"].format(
                        bucket_runs=self._bucket_table(bucket),
                        pipeline_runs=sql.Identifier(
                            "tallyweir", runs_of_pipeline(self._pipeline_number)
                        ),
                        bucket=sql.Literal(bucket),
                    )
                )

        missing = sorted(set(buckets) - self._buckets)
        if missing:
            self._run("creating buckets of the catalog", create)
            self._buckets.update(missing)

    def _drop_buckets(self, live_from_us: int) -> None:
        width_us = self._layout.bucket_seconds * 1_000_000
        for bucket in sorted(self._buckets):
            if bucket * 1_000_000 + width_us > live_from_us:
                return
            statement = _RUNS["drop_bucket"].format(
                bucket_runs=self._bucket_table(bucket)
            )
            self._drop("dropping a bucket of the catalog", statement)
            self._buckets.discard(bucket)

    def _bucket_table(self, bucket: int) -> sql.Identifier:
        return sql.Identifier(
            "tallyweir", runs_of_bucket(self._pipeline_number, bucket)
        )

    def _truncate_staging(self, connection: psycopg.Connection[TupleRow]) -> None:
        tables = sql.SQL(", ").join(
            staging_table(self._pipeline_number, self._epoch, table)
            for table in staging_tables(self._layout)
        )
        connection.execute("SET LOCAL lock_timeout = '1s'")
        connection.execute(sql.SQL("TRUNCATE {}").format(tables))

    def _drop_superseded_staging(self) -> None:
        """Drop staging of older epochs; one that is locked waits for a later start."""
        own = staging_schema(self._pipeline_number, self._epoch)
        pattern = f"^tallyweir_stage_{self._pipeline_number}_[0-9]+$"

        def find(connection: psycopg.Connection[TupleRow]) -> list[str]:
            rows = connection.execute(
                _CLAIM["superseded_staging"], {"pattern": pattern, "own": own}
            ).fetchall()
            return [row[0] for row in rows if re.fullmatch(pattern, row[0])]

        for schema in self._run("looking for old staging", find):
            statement = _CLAIM["drop_staging"].format(schema=sql.Identifier(schema))
            try:
                self._drop("dropping old staging", statement)
            except RetryableError:
                continue

    def _drop(self, doing: str, statement: sql.Composed) -> None:
        """Drop something, without waiting long for those who still read it."""

        def drop(connection: psycopg.Connection[TupleRow]) -> None:
            connection.execute("SET LOCAL lock_timeout = '1s'")
            connection.execute(statement)

        self._run(doing, drop)

    def _find_rejected(self, tally: BatchTally) -> list[RejectedRow]:
        rejected: list[RejectedRow] = []
        for output in self._layout.outputs:
            if not isinstance(output, AppendTable):
                continue
            if not tally.staged.get(output.staging_table):
                continue
            with translated("looking for rejected rows"):
                rejected += RejectionSearch(
                    self._connected(),
                    output,
                    pipeline_number=self._pipeline_number,
                    epoch=self._epoch,
                    attempts=tally.attempts,
                ).run()
        return rejected

    def _commit(self, connection: psycopg.Connection[TupleRow]) -> None:
        try:
            connection.commit()
        except psycopg.OperationalError as error:
            self._discard(connection)
            raise OutcomeUnknownError(
                "COMMIT_UNKNOWN",
                saw="The connection was lost while Postgres was committing a batch.",
                why="The batch may be in the tables or not.",
                fix="Nothing to do: the offsets in Postgres tell, and are read next.",
            ) from error
        except psycopg.Error as error:
            self._discard(connection)
            raise translate(error, doing="committing a batch") from error

    def _run(
        self, doing: str, work: Callable[[psycopg.Connection[TupleRow]], _T]
    ) -> _T:
        """Do one transaction; a failure closes the connection and is translated."""
        with translated(doing):
            connection = self._connected()
            try:
                result = work(connection)
                connection.commit()
            except BaseException:
                self._discard(connection)
                raise
            return result

    def _connected(self) -> psycopg.Connection[TupleRow]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(
                self._dsn,
                application_name=application_name(self._pipeline_number, self._epoch),
            )
        return self._connection

    def _discard(self, connection: psycopg.Connection[TupleRow]) -> None:
        connection.close()
        self._connection = None
