"""The home database as one driver uses it: claims, progress, and where to publish.

It implements the ``Home`` port; ``publish_transaction`` is the transaction it opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.catalog.seen_id_buckets import SeenIdBuckets
from tallyweir.sinks.postgres.ledger.epoch_claims import (
    check_not_discarded,
    check_not_paused,
    draw_nonce,
    identify,
    make_claim,
    read_hold,
    read_newest_driver_claim,
    read_newest_epoch,
    register_pipeline,
)
from tallyweir.sinks.postgres.ledger.stored_state import (
    PostgresDecisionLedger,
    read_decided,
    read_stored_progress,
)
from tallyweir.sinks.postgres.outputs.lost_tables import check_not_lost, read_owed
from tallyweir.sinks.postgres.outputs.output import Output, tables_of
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.result_tables import create_result_tables
from tallyweir.sinks.postgres.outputs.table_trouble import explain_failure
from tallyweir.sinks.postgres.publish.publish_clock import PublishClock
from tallyweir.sinks.postgres.publish.publish_transaction import (
    HomeOrder,
    PostgresPublishTransaction,
)
from tallyweir.sinks.postgres.server.connection import DatabaseLink
from tallyweir.sinks.postgres.server.instants import to_datetime, to_microseconds
from tallyweir.sinks.postgres.server.naming import HOME, application_name, state_table
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.staging_tables import StagingSchemas
from tallyweir.sinks.postgres.tables.shadow_tables import check_tables_kept
from tallyweir.sinks.postgres.tables.table_owners import TableOwner
from tallyweir.sinks.postgres.versions.version_claim import JudgedClaim, judge_claim
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, Progress
from tallyweir.sinks.protocol.recovery import StoredPosition
from tallyweir.sinks.protocol.votes import BatchTally

_CLAIM = load_statements("tallyweir.sinks.postgres.ledger", "claim.sql")
_KEYED = load_statements("tallyweir.sinks.postgres.publish", "keyed.sql")
_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")

_T = TypeVar("_T")


class PostgresHome(PostgresDecisionLedger):
    """One driver's view of its pipeline's home database.

    Holds two connections and reopens each after a failure: one publishes, the other
    reads while the next batch is planned. Use each from one thread at a time.

    Args:
        dsn: libpq connection string.
        layout: The pipeline's tables.
        run: The batch run that claims; None for a driver.

    Attributes:
        nonce: Nonce of the latest claim, even if its outcome is unknown.
    """

    def __init__(
        self, dsn: str, layout: PipelineLayout, *, run: str | None = None
    ) -> None:
        self._layout = self._asked = layout
        self._run = run
        self._link = DatabaseLink(dsn, application_name=application_name(0, 0))
        self._reading = DatabaseLink(dsn, application_name=application_name(0, 0))
        super().__init__(self._link, layout.pipeline)
        self.nonce = ""
        self._claim: EpochClaim | None = None
        self._clock = PublishClock()

    @property
    def claim(self) -> EpochClaim:
        """The claim that this driver made."""
        assert self._claim is not None, "an epoch is claimed first"
        return self._claim

    @property
    def layout(self) -> PipelineLayout:
        """The pipeline's tables, with what the home said of them at the claim."""
        return self._layout

    def claim_epoch(self) -> Epoch:
        """Register the pipeline, create its tables and fence every older driver.

        If the pipeline has changed only in ways that a start can carry out, the claim
        also makes it the next version.

        Raises:
            ConfigurationError: A table exists with other columns, is another
                pipeline's (``TABLE_OWNED``), or has lost its rows (``TABLE_LOST``);
                the role lacks a privilege,
                ``PIPELINE_DISCARDED``, or ``judge_claim`` refuses.
            RetryableError: The server is unreachable, an older driver's publish
                transaction does not end, ``PAUSED``, or ``TABLES_SWITCHED``.

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
            self.nonce = draw_nonce()
            self._claim = make_claim(
                connection,
                self._layout.pipeline,
                nonce=self.nonce,
                run=self._run,
                # An act may put another version into force meanwhile. If its number is
                # earlier, the check sees it, and no driver is fenced; if it is later,
                # the act fences this driver.
                check=partial(self._judge, connection),
            )
            self._staging = self._staging_schemas()
            # A publish transaction locks this row. Once this transaction has locked it,
            # an older driver can lock it only afterwards, and then finds the new claim.
            connection.execute(_PUBLISH["begin_settings"])
            row = connection.execute(_PUBLISH["lock_pipeline"], values).fetchone()
            if row is None:
                check_not_discarded(connection, self._layout.pipeline)
            assert row is not None
            check_tables_kept(connection, self._layout.pipeline, self._layout.shadows)
            judged = self._judge(connection)
            judged.note(connection, epoch=self._claim.epoch, last_sequence=row[1])
            self._read_owed(connection)
            # By now, a driver that wrote more tables than this version does is fenced.
            kept = tables_of(self._outputs_here())
            self._owner(connection).release(connection, kept)
            self._staging.create(connection)
            return self._claim.epoch

        epoch = self._link.run("claiming an epoch", claim)
        number = self.claim.pipeline_number
        for link in (self._link, self._reading):
            link.application_name = application_name(number, epoch)
            # The next transaction opens a connection under that name.
            link.close()
        self._buckets = SeenIdBuckets(
            self._link,
            pipeline_number=number,
            bucket_seconds=self._layout.bucket_seconds,
        )
        return epoch

    def drop_superseded_staging(self) -> None:
        """Drop what older epochs have staged; best effort.

        Raises:
            RetryableError: The server is unreachable.
        """
        self._staging.drop_superseded()

    def read_progress(self) -> Progress:
        """Read where the pipeline stands.

        Raises:
            RetryableError: The server is unreachable.
        """
        return self._read("reading the pipeline's progress", read_stored_progress)

    def read_newest_epoch(self) -> Epoch:
        """Return the newest claimed epoch; 0 if no claim is kept.

        Raises:
            RetryableError: The server is unreachable.
        """
        return self._read("reading the claims", read_newest_epoch)

    def read_newest_driver_claim(self) -> tuple[Epoch, str]:
        """Return the newest epoch that a driver claimed, not a run or act; its nonce.

        Raises:
            RetryableError: The server is unreachable.
        """
        return self._read("reading the claims of drivers", read_newest_driver_claim)

    def read_hold(self) -> str | None:
        """Say what keeps a driver from claiming: a pause, or a batch run at work.

        Raises:
            RetryableError: The server is unreachable.
        """
        return self._read("looking for a pause or a batch run", read_hold)

    def check_not_paused(self) -> None:
        """Raise ``PAUSED``, a RetryableError, while the pipeline is paused."""
        self._read("looking for a pause", check_not_paused)

    def register_positions(
        self, starts: Mapping[TopicPartition, StoredPosition]
    ) -> None:
        """Record where to begin partitions that the pipeline has not read before.

        Crash:
            Either all positions are recorded or none. A recorded position is only a
            beginning, so the next start finds what this one would have done.
        """

        def register(connection: psycopg.Connection[TupleRow]) -> None:
            for topic_partition, start in starts.items():
                connection.execute(
                    _CLAIM["register_position"],
                    {
                        "pipeline": self._layout.pipeline,
                        "topic": topic_partition.topic,
                        "partition": topic_partition.partition,
                        "topic_id": start.topic_id,
                        "next_offset": start.next_offset,
                    },
                )

        self._link.run("registering positions", register)

    def read_clock_us(self) -> int:
        """Return the server's time, from which the driver takes all instants."""

        def read(connection: psycopg.Connection[TupleRow]) -> datetime:
            ((instant,),) = connection.execute(_CLAIM["server_clock"])
            assert isinstance(instant, datetime)
            return instant

        return to_microseconds(self._reading.run("reading the clock", read))

    def has_due_timers(self, *, watermark_us: int | None, now_us: int | None) -> bool:
        """Tell whether a timer is due at a watermark and a time of the server's clock.

        If either is None, timers of that kind do not count.

        Raises:
            RetryableError: The server is unreachable.
        """
        values = {
            "pipeline": self._layout.pipeline,
            "watermark": to_datetime(watermark_us),
            "now": to_datetime(now_us),
        }

        def look(connection: psycopg.Connection[TupleRow]) -> bool:
            ((is_due,),) = connection.execute(_KEYED["has_due_timers"], values)
            return bool(is_due)

        return self._reading.run("looking for timers", look)

    def count_dead_letters(self, sequence: int) -> dict[str, int]:
        """Count the dead letters of a published batch by their reason.

        Raises:
            RetryableError: The server is unreachable.
        """
        values = {"pipeline": self._layout.pipeline, "sequence": sequence}
        count = _PUBLISH["count_dead_letters"]
        return self._link.run(
            "counting dead letters",
            lambda connection: dict(connection.execute(count, values)),
        )

    def read_decided(self) -> Mapping[str, GlobalId]:
        """Read the newest decision of each branch.

        Raises:
            RetryableError: The server is unreachable.
        """
        pipeline, branches = self._layout.pipeline, self._layout.branches
        return self._link.run(
            "reading the decisions",
            lambda connection: read_decided(connection, pipeline, branches),
        )

    def open_publish_transaction(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> PostgresPublishTransaction:
        """Begin the publish transaction; see ``Home`` for the errors.

        Crash:
            Nothing is changed before its ``commit``.
        """
        self._clock.begin()
        self._buckets.create(
            tally.buckets,
            live_from_us=self._layout.expired_before_us(plan.watermark_us),
            # The operator can split the bounded input of a batch run instead.
            may_reject=plan.run is None,
        )
        with translated("publishing"):
            connection = self._link.connected()
        transaction = PostgresPublishTransaction(
            connection,
            self._layout,
            HomeOrder(plan=plan, tally=tally, restagings=restagings, clock=self._clock),
            claim=self.claim,
        )
        self._staging.note_published(
            plan.sequence, tally.staged, attempts=len(tally.attempts)
        )
        return transaction

    def tidy(self, *, live_from_us: int | None) -> None:
        """Remove what no batch needs any more; best effort, and safe at any time.

        Drops the seen-ID buckets that end at or before ``live_from_us`` and empties
        staging. Tables that another transaction has locked stay for a minute.
        """
        if live_from_us is not None:
            with suppress(RetryableError):
                self._buckets.drop_before(live_from_us)
        with suppress(RetryableError):
            self._staging.tidy()

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
        self._reading.close()

    def _read(
        self, doing: str, reading: Callable[[psycopg.Connection[TupleRow], str], _T]
    ) -> _T:
        """Read something of the pipeline, over the connection that planning uses."""
        return self._reading.run(
            doing, lambda connection: reading(connection, self._layout.pipeline)
        )

    def _staging_schemas(self) -> StagingSchemas:
        """Return the staging of the home itself and of branches in its database."""
        return StagingSchemas(
            self._link,
            layout=self._layout,
            branches=[HOME, *self._layout.branches_in(HOME)],
            claim=self.claim,
            is_home=True,
        )

    def _register(
        self,
        connection: psycopg.Connection[TupleRow],
        values: Mapping[str, object],
    ) -> None:
        connection.execute(_PUBLISH["begin_settings"])
        number, bucket_seconds = register_pipeline(connection, values)
        # The claim checks this again under the lock; here nothing is created yet.
        check_tables_kept(connection, self._layout.pipeline, self._layout.shadows)
        self._judge(connection)
        # Seen IDs are filed in buckets of this length, whatever the horizon is now.
        self._layout = replace(self._layout, bucket_seconds=bucket_seconds)
        connection.execute(_CLAIM["create_pipeline_runs"], values)
        outputs = self._outputs_here()
        try:
            self._owner(connection).claim(connection, tables_of(outputs))
            check_not_lost(connection, self._layout.pipeline, outputs)
            create_result_tables(connection, outputs, partial(state_table, number))
        except psycopg.errors.LockNotAvailable as error:
            doing = "checking the result tables"
            raise explain_failure(connection, outputs, error, doing=doing) from error
        connection.commit()

    def _outputs_here(self) -> list[Output]:
        here = {HOME, *self._layout.branches_in(HOME)}
        return [o for o in self._layout.outputs if here & set(o.branches)]

    def _read_owed(self, connection: psycopg.Connection[TupleRow]) -> None:
        """Note what tables outside of the home should hold; no driver fills them."""
        beside = [o for o in self._layout.outputs if set(o.branches) - {HOME}]
        owed = read_owed(connection, self._layout.pipeline, beside)
        self._layout = replace(self._layout, owed=owed)

    def _owner(self, connection: psycopg.Connection[TupleRow]) -> TableOwner:
        installation, _ = identify(connection, self._layout.pipeline)
        return TableOwner(installation=installation, pipeline=self._layout.pipeline)

    def _judge(self, connection: psycopg.Connection[TupleRow]) -> JudgedClaim:
        """Check that the pipeline may run so, and adopt what the home says of it."""
        judged = judge_claim(connection, self._asked)
        self._layout = replace(
            judged.held.applied_to(self._asked),
            bucket_seconds=self._layout.bucket_seconds,
        )
        return judged
