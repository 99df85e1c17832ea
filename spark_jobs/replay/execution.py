"""Computes a pipeline's batches again, one after another, into scratch databases.

Each batch has the ranges of the ledger, with the watermark and the clock that it was
planned by, and passes the same tasks, votes and publish transaction as in a driver. The
replay claims nothing in the pipeline's home, and writes nothing there.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby

from pyspark.sql import DataFrame

from tallyweir.sinks.postgres.audit.replay.replay_committed import (
    Committed,
    RecordedBatch,
    RecordedPipeline,
)
from tallyweir.sinks.postgres.audit.replay.replay_receipt import (
    ComparedPart,
    Finding,
    FoundRow,
)
from tallyweir.sinks.postgres.audit.replay.replay_rows import ReplayRows
from tallyweir.sinks.postgres.audit.replay.replay_scratch import ReplayScratch
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import BatchKey, SparkBatchId
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    Progress,
    RejectedBucket,
    RejectedRow,
    Rejection,
    RoomlessRow,
    StagedBatch,
)
from tallyweir.sinks.protocol.votes import NOTHING_STAGED, BatchTally
from tallyweir.sinks.protocol.watermark import ClockRule
from tallyweir.sinks.seen_ids.claim_holder import OpenView
from tallyweir.spark_jobs.batch.kafka_ranges import ranges_of, topic_id_of
from tallyweir.spark_jobs.batch.upsert import correcting
from tallyweir.spark_jobs.batches.prepared_pipeline import (
    ClaimedDatabases,
    PreparedPipeline,
)
from tallyweir.spark_jobs.batches.stage_jobs import StageJobs
from tallyweir.spark_jobs.replay.replayed_ids import FormerIds, RecordedClaims
from tallyweir.spark_jobs.source.kafka_source import read_ranges
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.tables.layout_builder import SHARDS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPlan(BatchPlan):
    """A plan after which the watermark is that of the ledger.

    So lateness and timers are decided as before, even if the clocks of the partitions
    are unknown because batches that are not replayed have moved them.
    """

    recorded_us: int | None

    def watermark_after(self, rule: ClockRule, tally: BatchTally) -> int | None:
        """Return the watermark of the ledger."""
        del rule, tally
        return self.recorded_us

    def derived_after(self, rule: ClockRule, tally: BatchTally) -> int | None:
        """Return the watermark after the batch by the rule."""
        return BatchPlan.watermark_after(self, rule, tally)


def recorded_plan(
    batch: RecordedBatch,
    key: BatchKey,
    progress: Progress,
    *,
    topic_ids: Mapping[str, str],
    lookups: Mapping[str, str],
) -> RecordedPlan:
    """Plan a batch as the driver did; the scratch home stands right before it."""
    return RecordedPlan(
        key=key,
        ranges=batch.ranges,
        watermark_us=batch.watermark_before_us,
        after_sequence=progress.last_sequence,
        clocks=progress.clocks,
        planned_at_us=batch.planned_at_us,
        topic_ids=topic_ids,
        lookups=lookups,
        run=batch.run,
        recorded_us=batch.watermark_after_us,
    )


def closes(plan: RecordedPlan, rule: ClockRule) -> bool:
    """Return whether a tick has moved the watermark, as only a closing tick does."""
    return plan.derived_after(rule, NOTHING_STAGED) != plan.recorded_us


def as_closing(plan: RecordedPlan) -> RecordedPlan:
    """Return a tick as one that closes what is open; it fires no clock timers."""
    return replace(plan, closes_through_us=plan.recorded_us)


#: Seconds between two lines.
_EVERY_S = 5.0
_MINUTE_S = 60


class ReplayProgress:
    """Counts batches and records, and reports every few seconds the time left.

    Args:
        batches: Number of batches to compute.
        records: Number of records that they have read.
        tell: Called with each line.
    """

    def __init__(self, batches: int, records: int, tell: Callable[[str], None]) -> None:
        self._batches = batches
        self._records = records
        self._tell = tell
        self._began = time.monotonic()
        self._told = self._began
        #: Batches and records computed so far.
        self.batches = 0
        self.records = 0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def note(self, records: int) -> None:
        """Count a batch, with the records that it has read."""
        self.batches += 1
        self.records += records
        now = time.monotonic()
        if self.batches == self._batches or now - self._told >= _EVERY_S:
            self._told = now
            self._tell(self._line())

    def _line(self) -> str:
        rate = self.records / max(self.seconds, 0.001)
        left = self._records - self.records
        said = (
            f"replayed {self.batches:,} of {self._batches:,} batches, {rate:,.0f} "
            "records/s"
        )
        if self.batches == self._batches or not rate:
            return said
        seconds = left / rate
        if seconds < _MINUTE_S:
            return f"{said}, {seconds:.0f} s left"
        return f"{said}, {seconds / _MINUTE_S:.0f} min left"


WATERMARKS = "watermarks"


@dataclass(slots=True, kw_only=True)
class Execution:
    """Computes the batches.

    Attributes:
        prepared: The pipeline, ready to run in the scratch databases.
        committed: The committed results to compare with.
        rows: Rows of the replay, including those that chance decided.
        scratch: Databases that the batches are published to.
        batches: Batches to compute.
        knows_state: They begin with the first batch, or with a snapshot's state.
        former: IDs of the batches that are not computed; None if there are none.
        progress: Counts the computed batches.
        watermarks: Differences between the watermark by the rule and in the ledger.
        lookups: Names in the ledger of lookups that have changed.
        refused: Number of rows left out because tables had refused them.
        roomless: Number of rows left out because the catalog had no room for their IDs.
    """

    prepared: PreparedPipeline
    committed: Committed
    rows: ReplayRows
    scratch: ReplayScratch
    batches: Sequence[RecordedBatch]
    knows_state: bool
    former: FormerIds | None
    progress: ReplayProgress
    watermarks: ComparedPart = field(
        default_factory=lambda: ComparedPart(name=WATERMARKS)
    )
    lookups: set[str] = field(default_factory=set)
    refused: int = 0
    roomless: int = 0
    #: Epoch of the drain that the last closing tick was part of.
    _closing_epoch: int | None = None
    _positions: dict[TopicPartition, int] = field(default_factory=dict)
    _stands_at: int = 0
    _numbers: int = 0

    @property
    def _recorded(self) -> RecordedPipeline:
        return self.committed.recorded

    @property
    def _places(self) -> SourcePlaces:
        topics = set(self.prepared.recipe.pipeline.source.topics)
        topics |= self._recorded.topic_ids.keys()
        return SourcePlaces(tuple(topics))

    def run(self) -> None:
        """Compute every batch.

        When earlier batches were staged, later erasures had not happened yet. So each
        erasure begins a claim of its own, which knows the tombstones of its time. Each
        batch run begins one too, because its records belong to a topic of its own.

        Raises:
            ConfigurationError: ``REPLAY_LACKS_BUCKETS``.
            TallyweirError: As a driver.
        """
        epochs = [one.epoch for one in self._recorded.erasures]
        buried: Sequence[int] = ()

        def alike(batch: RecordedBatch) -> tuple[tuple[int, ...], BatchRun | None]:
            return tuple(e for e in epochs if e < batch.epoch), batch.run

        for (known, run), batches in groupby(self.batches, key=alike):
            with self._opened(set(known) - set(buried), run) as opened:
                for batch in batches:
                    self._run_batch(batch, *opened)
            buried = known
        if set(epochs) - set(buried):
            with closing(self.prepared.open_home()) as home:
                home.claim_epoch()
                self.scratch.bury(
                    self.committed, set(epochs) - set(buried), home.claim.epoch
                )

    @contextmanager
    def _opened(
        self, erasures: set[int], run: BatchRun | None
    ) -> Iterator[tuple[ClaimedDatabases, StageJobs, RecordedClaims | None]]:
        """Open a claim of the scratch home, with everything that its batches need."""
        made: list[RecordedClaims] = []

        def make_holder(open_view: OpenView) -> RecordedClaims:
            shown = open_view
            if self.former is not None:
                shown = self.former.beside(open_view)
            made.append(RecordedClaims(shown))
            return made[0]

        prepared = self.prepared
        if run is not None and run.corrects:
            layout = correcting(prepared.layout, prepared.recipe.pipeline)
            prepared = replace(prepared, layout=layout)
        with closing(prepared.open_home()) as home:
            home.claim_epoch()
            self.scratch.bury(self.committed, erasures, home.claim.epoch)
            with (
                prepared.opened_databases(home) as databases,
                prepared.opened_jobs(
                    home,
                    claim=uuid.uuid4().hex[:12],
                    places=self._places if run is None else SourcePlaces((run.topic,)),
                    tasks=lambda: SHARDS,
                    make_holder=make_holder,
                ) as jobs,
            ):
                jobs.lookups.refresh(home.read_clock_us())
                yield databases, jobs, made[0] if made else None

    def _run_batch(
        self,
        batch: RecordedBatch,
        databases: ClaimedDatabases,
        jobs: StageJobs,
        claims: RecordedClaims | None,
    ) -> None:
        self._stand_before(batch, jobs)
        lost, left_out = self._decided_by_chance(batch)
        if claims is not None:
            claims.follow((jobs.places.number(place), offset) for place, offset in lost)
        plan = self._plan(batch, jobs)
        self.lookups |= {
            name
            for name, version in batch.lookups.items()
            if plan.lookups.get(name) != version
        }
        coordinator = jobs.coordinator(databases.publisher)

        def stage(plan: BatchPlan, rejected: Sequence[Rejection]) -> StagedBatch:
            if any(isinstance(one, RejectedBucket) for one in rejected):
                raise _too_few_buckets(batch.sequence)
            return jobs.stage_events(
                lambda: self._records(batch, jobs), plan, (*left_out, *rejected)
            )

        if batch.ranges:
            result = coordinator.run_batch(plan, stage)
        else:
            result = coordinator.run_tick(plan)
        self._note_watermark(
            plan, plan.derived_after(jobs.layout.clock_rule, result.tally)
        )
        self._positions.update(
            {one.topic_partition: one.until_offset for one in batch.ranges}
        )
        self._stands_at = batch.sequence
        databases.tidy(live_from_us=jobs.live_from_us(plan))
        self.progress.note(batch.records)

    def _records(self, batch: RecordedBatch, jobs: StageJobs) -> DataFrame:
        run = batch.run
        ranges = batch.ranges if run is None else ranges_of(run)
        topic_ids = self._recorded.topic_ids
        if run is not None:
            topic_ids = {one.topic_partition.topic: topic_id_of(run) for one in ranges}
        records = read_ranges(
            self.prepared.spark,
            self.prepared.settings,
            self.prepared.recipe.pipeline,
            [one for one in ranges if one.length],
            topic_ids=topic_ids,
        )
        # A driver's stream selects columns too, where tasks need only what Kafka has.
        return jobs.choose_columns(records) if run is None else records

    def _stand_before(self, batch: RecordedBatch, jobs: StageJobs) -> None:
        """Set the scratch home to where the pipeline stood before a batch.

        Acts may have moved positions, and restores may have left numbers unused.
        """
        for one in batch.ranges:
            place = one.topic_partition
            # A run begins at the start of its input, and has no former position.
            if batch.run is None and self._positions.get(place) != one.from_offset:
                self.scratch.stand_at(
                    place, self._recorded.topic_ids[place.topic], one.from_offset
                )
        progress = jobs.home.read_progress()
        stands = (progress.last_sequence, progress.watermark_us)
        if stands == (batch.sequence - 1, batch.watermark_before_us):
            return
        begins_anew = batch.run is not None and batch.run.replaces
        is_known = self._stands_at and not begins_anew
        if is_known and progress.watermark_us != batch.watermark_before_us:
            self._note_difference(
                batch.sequence,
                "before",
                batch.watermark_before_us,
                progress.watermark_us,
            )
        self.scratch.stand_after(batch.sequence - 1, batch.watermark_before_us)

    def _decided_by_chance(
        self, batch: RecordedBatch
    ) -> tuple[list[tuple[TopicPartition, int]], list[Rejection]]:
        """Return the rows that lost their ID to a copy, and the rows to leave out."""
        aside = self.rows.aside_of(batch.sequence)
        lost = [(place, offset) for place, offset, kind, _ in aside if kind == "lost"]
        refused = [
            RejectedRow(topic_partition=place, offset=offset, detail=detail)
            for place, offset, kind, detail in aside
            if kind == "refused"
        ]
        roomless = [
            RoomlessRow(topic_partition=place, offset=offset, detail=detail)
            for place, offset, kind, detail in aside
            if kind == "roomless"
        ]
        known_schemas = self.prepared.known_schemas
        if known_schemas is not None:
            headers = {detail for _, _, kind, detail in aside if kind == "unknown"}
            # Behind the magic byte is the id.
            known_schemas.replay(
                [int.from_bytes(bytes.fromhex(header)[1:]) for header in headers]
            )
        self.refused += len(refused)
        self.roomless += len(roomless)
        return lost, [*refused, *roomless]

    def _plan(self, batch: RecordedBatch, jobs: StageJobs) -> RecordedPlan:
        self._numbers += 1
        is_tick = not batch.ranges
        plan = recorded_plan(
            batch,
            BatchKey(
                epoch=jobs.home.claim.epoch,
                spark_batch_id=None if is_tick else SparkBatchId(self._numbers),
            ),
            jobs.home.read_progress(),
            topic_ids=self._recorded.topic_ids
            if batch.run is None
            else {batch.run.topic: batch.run.name},
            lookups={} if is_tick else jobs.versions,
        )
        if is_tick and (
            self._closing_epoch == batch.epoch or closes(plan, jobs.layout.clock_rule)
        ):
            self._closing_epoch = batch.epoch
            return as_closing(plan)
        return plan

    def _note_watermark(self, plan: RecordedPlan, derived_us: int | None) -> None:
        self.watermarks.committed += 1
        self.watermarks.replayed += 1
        is_known = self.knows_state and plan.closes_through_us is None
        if is_known and derived_us != plan.recorded_us:
            self._note_difference(plan.sequence, "after", plan.recorded_us, derived_us)
        else:
            self.watermarks.equal += 1

    def _note_difference(
        self, sequence: int, when: str, recorded_us: int | None, derived_us: int | None
    ) -> None:
        self.watermarks.add(
            FoundRow(
                key={"sequence": str(sequence)},
                finding=Finding.DIFFERENT,
                committed={f"watermark_{when}": str(to_datetime(recorded_us))},
                replayed={f"watermark_{when}": str(to_datetime(derived_us))},
            )
        )


def _too_few_buckets(sequence: int) -> ConfigurationError:
    return ConfigurationError(
        "REPLAY_LACKS_BUCKETS",
        saw=f"The scratch server has no room for the buckets of seen IDs that batch "
        f"{sequence} has filed.",
        why="The replay would count its events as dead letters by mistake.",
        fix="Give the scratch server the limit of the home's server: ALTER SYSTEM "
        "SET max_locks_per_transaction, then restart it; or let "
        "TALLYWEIR_SCRATCH_DSN name another server.",
    )
