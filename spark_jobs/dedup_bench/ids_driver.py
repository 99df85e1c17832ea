"""A driver that has IDs and no results, in one thread, without Spark, and its events.

An event is only a number, from which its ID and its time follow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark import SparkConf

from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.connection import KeptConnection
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter, TaskStaging
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.identity import Attempt, BatchKey, SparkBatchId
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.votes import (
    EventCounts,
    PartitionTally,
    Vote,
    tally_votes,
)
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer, RowClass, new_runs
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder
from tallyweir.sinks.seen_ids.event_hashes import fingerprint
from tallyweir.sinks.seen_ids.id_hash import KEY_BYTES
from tallyweir.sinks.seen_ids.ordering import I64Array, U64Array
from tallyweir.sinks.seen_ids.run import ids_by_bucket
from tallyweir.spark_jobs.batches.open_id_holder import opened_id_claims, terms_of
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.tables.layout_builder import SHARDS
from tallyweir.spark_jobs.task.staged_rows import write_runs

#: Tasks of a batch; each asks for the IDs of one partition.
TASKS = 4

#: Any key will do: the cost of a fingerprint does not depend on it.
_KEY = b"bench".ljust(KEY_BYTES, b".")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """When numbered events happened.

    Attributes:
        begin_us: Time of number 0: 2026-01-01, in the past, because no event may be
            ahead of the machine's clock.
        gap_us: Time from one event to the next. At 200 events a second 10**8 of them
            fit into a horizon of seven days.
    """

    begin_us: int = 1_767_225_600_000_000
    gap_us: int = 5_000

    def of(self, numbers: I64Array) -> I64Array:
        """Return when events happened; a repeat has the time of the original event."""
        return self.begin_us + numbers * self.gap_us


EVENT_TIMES = EventTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question of one task.

    Attributes:
        candidates: The task's rows, in the order in which they must ask.
        event_time_max_us: Time of its newest event.
    """

    candidates: Candidates
    event_time_max_us: int


def ids_of(numbers: I64Array) -> U64Array:
    """Fingerprint the IDs of events."""
    return fingerprint([pa.array(numbers)], _KEY)


def questions_of(
    numbers: I64Array,
    *,
    starts: Sequence[int],
    bucket_seconds: int,
    times: EventTimes = EVENT_TIMES,
) -> list[Question]:
    """Divide a batch among its tasks, in order.

    Args:
        numbers: Numbers of its events, in the order of their offsets.
        starts: The first offset of each task's partition.
        bucket_seconds: How much event time a bucket covers.
        times: When the events happened.
    """
    return [
        _question(share, place, start, bucket_seconds, times)
        for place, (share, start) in enumerate(
            zip(np.array_split(numbers, TASKS), starts, strict=True)
        )
    ]


def _question(
    numbers: I64Array, place: int, start: int, bucket_seconds: int, times: EventTimes
) -> Question:
    pairs = ids_of(numbers)
    times_us = times.of(numbers)
    written = Candidates(
        place=np.full(len(numbers), place, dtype=np.int64),
        offset=np.arange(start, start + len(numbers), dtype=np.int64),
        bucket=times_us // 1_000_000 // bucket_seconds * bucket_seconds,
        hi=np.ascontiguousarray(pairs[:, 0]),
        lo=np.ascontiguousarray(pairs[:, 1]),
        # A repeat copies the event byte for byte, so its payload has the same hash.
        payload_hashes=np.maximum(pairs[:, 0] ^ pairs[:, 1], np.uint64(1)),
    )
    return Question(
        candidates=written.take(written.order()), event_time_max_us=int(times_us.max())
    )


PIPELINE = "bench-dedup"
_PARTITIONS = tuple(TopicPartition(PIPELINE, number) for number in range(TASKS))
_DAY_S = 86_400
_HORIZON_S = 7 * _DAY_S

#: The layout of a pipeline whose file names nothing but its source.
LAYOUT = PipelineLayout(
    pipeline=PIPELINE,
    definition=json.dumps({"outputs": []}),
    definition_hash="bench",
    outputs=(),
    shards=SHARDS,
    bucket_seconds=_HORIZON_S // 8,
    watermark_delay_us=0,
    idle_timeout_us=_DAY_S * 1_000_000,
    horizon_us=_HORIZON_S * 1_000_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch, and the questions of its tasks."""

    plan: BatchPlan
    questions: Sequence[Question]

    @property
    def events(self) -> int:
        return sum(len(question.candidates) for question in self.questions)


@dataclass(kw_only=True)
class IdsDriver:
    """Plans, claims and publishes batches one by one, under one claim of an epoch."""

    home: PostgresHome
    publisher: Publisher
    holder: ClaimHolder
    staging: KeptConnection
    dsn: str
    times: EventTimes
    batches: int = 0
    attempts: int = field(default=0)

    def plan(self, numbers: I64Array) -> PlannedBatch:
        """Plan a batch of events, a quarter of them in each partition."""
        progress = self.home.read_progress()
        starts = [
            position.next_offset if position else 0
            for position in map(progress.positions.get, _PARTITIONS)
        ]
        questions = questions_of(
            numbers,
            starts=starts,
            bucket_seconds=LAYOUT.bucket_seconds,
            times=self.times,
        )
        self.batches += 1
        plan = BatchPlan(
            key=BatchKey(
                epoch=self.home.claim.epoch, spark_batch_id=SparkBatchId(self.batches)
            ),
            ranges=tuple(
                OffsetRange(
                    topic_partition=partition,
                    from_offset=start,
                    until_offset=start + len(question.candidates),
                )
                for partition, start, question in zip(
                    _PARTITIONS, starts, questions, strict=True
                )
            ),
            watermark_us=progress.watermark_us,
            after_sequence=progress.last_sequence,
            clocks=progress.clocks,
            planned_at_us=self.home.read_clock_us(),
            topic_ids={PIPELINE: PIPELINE},
        )
        return PlannedBatch(plan=plan, questions=questions)

    def begin(self, batch: PlannedBatch) -> int:
        """Begin the round of a batch; return its number."""
        return self.holder.begin(terms_of(batch.plan, LAYOUT))

    def publish(self, batch: PlannedBatch, claims: Sequence[ClaimAnswer]) -> None:
        """Stage what the tasks have claimed, and publish it with the offsets."""
        votes = self._stage_all(batch, claims)
        filed = sum(vote.ids for vote in votes)
        again = self.holder.review(filed, in_order=False)
        assert again is None, "no task was run twice"
        self._publish(batch, votes)

    def publish_new(self, batch: PlannedBatch) -> None:
        """Publish a batch whose IDs are known to be new, without asking for them."""
        claims = [_all_new(question) for question in batch.questions]
        self._publish(batch, self._stage_all(batch, claims))

    def _publish(self, batch: PlannedBatch, votes: Sequence[Vote]) -> None:
        tally = tally_votes(votes, batch.plan.ranges, records_read=batch.events)
        outcome = self.publisher.publish(batch.plan, tally, restagings=0)
        assert outcome is PublishOutcome.COMMITTED, "nobody else publishes here"
        self.home.tidy(live_from_us=None)

    def _stage_all(
        self, batch: PlannedBatch, claims: Sequence[ClaimAnswer]
    ) -> list[Vote]:
        names = TableNames(
            pipeline_number=self.home.claim.pipeline_number,
            epoch=self.home.claim.epoch,
            sequence=batch.plan.sequence,
        )
        return [
            self._stage(names, partition, question, claim)
            for partition, question, claim in zip(
                _PARTITIONS, batch.questions, claims, strict=True
            )
        ]

    def _stage(
        self,
        names: TableNames,
        partition: TopicPartition,
        question: Question,
        claim: ClaimAnswer,
    ) -> Vote:
        runs = new_runs(claim, question.candidates)
        self.attempts += 1
        with TaskStaging(lambda _database: self._open_writer(names)) as staging:
            write_runs(staging, runs)
        ids = sum(map(len, runs))
        read = len(question.candidates)
        offsets = question.candidates.offset
        seen = PartitionTally(
            counts=EventCounts(read=read, committed=ids, duplicate=read - ids),
            offset_min=int(offsets.min()),
            offset_max=int(offsets.max()),
            event_time_max_us=question.event_time_max_us,
        )
        return Vote(
            attempt=Attempt(self.attempts),
            partitions={partition: seen},
            staged=staging.rows,
            outputs={},
            checksum=int(offsets[claim.survives].sum()),
            buckets=ids_by_bucket(runs),
        )

    def _open_writer(self, names: TableNames) -> StagingWriter:
        connection = self.staging.get(
            self.dsn,
            pipeline_number=names.pipeline_number,
            epoch=self.home.claim.epoch,
        )
        attempt = Attempt(self.attempts)
        return StagingWriter(connection, names=names, attempt=attempt)


@contextmanager
def started_ids_driver(
    settings: DriverSettings, times: EventTimes = EVENT_TIMES
) -> Iterator[IdsDriver]:
    """Start as a driver does: claim an epoch, settle, and hold the IDs.

    Args:
        settings: Settings that name the home.
        times: When the events happened.

    Raises:
        TallyweirError: The epoch could not be claimed.
    """
    home = PostgresHome(settings.home_dsn, LAYOUT)
    with closing(home), closing(KeptConnection()) as staging:
        home.claim_epoch()
        publisher = Publisher(home)
        publisher.start()
        home.drop_superseded_staging()
        directory = settings.fresh_directory("seen_ids", PIPELINE, "claim")
        with opened_id_claims(
            settings, LAYOUT, home.claim, directory=directory, conf=_local_conf()
        ) as claims:
            yield IdsDriver(
                home=home,
                publisher=publisher,
                holder=claims.holder,
                staging=staging,
                dsn=settings.home_dsn,
                times=times,
            )


def _all_new(question: Question) -> ClaimAnswer:
    """Answer as the holder does if all IDs are new."""
    candidates = question.candidates
    return ClaimAnswer(
        classes=np.full(len(candidates), RowClass.SURVIVOR, dtype=np.uint8),
        buckets=candidates.bucket,
    )


def _local_conf() -> SparkConf:
    """Return the settings that Spark would have for a driver on this machine."""
    return SparkConf(loadDefaults=False).set("spark.driver.host", "127.0.0.1")
