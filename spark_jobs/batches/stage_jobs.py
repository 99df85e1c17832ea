"""The Spark jobs of a batch: phase one stages its events, phase 2b its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from sinks.postgres.outputs.home_layout import HomeLayout
from sinks.postgres.outputs.keyed_table import KeyedTable
from sinks.postgres.publish.home import PostgresHome
from sinks.protocol.errors import RetryableError
from sinks.protocol.measures import NOTHING_MEASURED, Measures, cpu_of_tasks
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.ports import (
    BatchPlan,
    Progress,
    Rejection,
    StagedBatch,
    StagedKeys,
)
from sinks.protocol.vote_text import parse_keyed_vote, parse_vote
from sinks.protocol.votes import BatchTally
from spark_jobs.batches.driver_stage import DriverStage
from spark_jobs.frame.event_frame import EventFrameRecipe
from spark_jobs.frame.lookups import Lookups
from spark_jobs.frame.python_time import PythonTime
from spark_jobs.keyed.joined_events import as_stateful
from spark_jobs.keyed.key_task import KeyTask
from spark_jobs.pipeline.durations import in_microseconds
from spark_jobs.pipeline.join import JoinOutput
from spark_jobs.pipeline.redaction import Redaction
from spark_jobs.pipeline.source import Source
from spark_jobs.pipeline.stateful import StatefulOutput
from spark_jobs.source.event_columns import EVENT_ID, OFFSET, PLACE
from spark_jobs.source.source_places import SourcePlaces
from spark_jobs.tables.home_layout import read_columns
from spark_jobs.task.id_claims import IdClaims, terms_after, terms_of
from spark_jobs.task.samples import Sampling
from spark_jobs.task.stage_task import VOTE_SCHEMA, StageTask
from spark_jobs.task.verdicts import Rules

#: How often a batch is staged at most.
_STAGINGS_MAX = 5
_NO_ROUND = 0


def _nobody_asks() -> None:
    """Stand for whoever wants to know when records have been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJobs:
    """Runs them for one claim of one epoch; each collects the votes of its tasks.

    Who planned the batch, a stream's trigger or a batch run, is no matter to them.
    """

    spark: SparkSession
    home: PostgresHome
    layout: HomeLayout
    recipe: EventFrameRecipe
    lookups: Lookups
    #: What the events' positions are noted under.
    places: SourcePlaces
    #: Whom tasks ask for IDs; None if the pipeline looks at none.
    claims: IdClaims | None
    #: Takes the small batches.
    driver_stage: DriverStage
    #: All that is staged of a stream's records, where Spark computes nothing of them.
    as_read: Sequence[Column] | None
    #: Tells how many tasks Spark runs at a time now.
    tasks: Callable[[], int]
    #: None if the pipeline has no Python of its own, nor models.
    python_time: PythonTime | None
    #: What is never shown of the rows.
    redaction: Redaction
    #: What is kept of them for people to look at; None for nothing.
    sampling: Sampling | None

    @property
    def versions(self) -> dict[str, str]:
        """What the events are enriched with, for the ledger."""
        return {**self.lookups.versions, **self.recipe.model_versions}

    def choose_columns(self, stream: DataFrame) -> DataFrame:
        """Leave out of a stream's records what nobody asks for.

        Chosen for each batch, columns would be copied once more: Spark copies what a
        stream gives to a batch, and that again where anything is chosen of it.
        """
        return stream if self.as_read is None else stream.select(*self.as_read)

    def leave_out(
        self, records: DataFrame, before: Mapping[TopicPartition, int]
    ) -> DataFrame:
        """Leave out of a stream's chosen columns the records before some offsets."""
        place, offset = F.col(PLACE), F.col(OFFSET)
        if self.as_read is None:
            place, offset = self.places.column(), F.col("offset")
        for partition, begin in before.items():
            is_there = place == F.lit(self.places.number(partition))
            records = records.where(~(is_there & (offset < F.lit(begin))))
        return records

    def stage_events(
        self,
        records: Callable[[], DataFrame],
        plan: BatchPlan,
        rejected: Sequence[Rejection],
        *,
        on_read: Callable[[], None] = _nobody_asks,
    ) -> StagedBatch:
        """Run phase one, and again until what was staged can be relied on.

        An executor that is lost takes its shuffled rows along. Spark reads the source
        again for them, for other tasks than those that had the rows already, and adds
        what it reads to the same observation. So a count above that of the tasks is
        what a lost executor leaves, or the sign of lost rows: only the second comes
        back when the batch is staged again, and is left to ``tally_votes``.

        Args:
            records: Makes a frame of the batch's records, as Spark's source gives
                them. Asked for where they are not read otherwise.
            plan: The batch's.
            rejected: What tables have refused of it so far.
            on_read: Called each time when all records have been read.

        Raises:
            RetryableError: ``STAGING_UNSETTLED``.
            TallyweirError: What a task has stated instead of a vote.
        """
        claim_round = self.begin_claims(plan)
        for _ in range(_STAGINGS_MAX):
            task = self.task(plan, rejected, claim_round)
            staged = self._stage_once(records, plan, task, on_read)
            seen = (
                tally for vote in staged.votes for tally in vote.partitions.values()
            )
            was_read_again = staged.records_read > sum(t.counts.read for t in seen)
            if was_read_again:
                continue
            begun = self._review_claims(plan, staged)
            if begun is None:
                return self._with_searches(staged)
            claim_round = begun
        if was_read_again:
            return staged
        raise RetryableError(
            "STAGING_UNSETTLED",
            saw=f"A batch was staged {_STAGINGS_MAX} times, and each time tasks that "
            "ran again had decided otherwise than before.",
            why="An event could be lost to a copy that is not staged.",
            fix="Nothing if it passes; else make the pipeline's own Python give the "
            "same rows each time it is run.",
        )

    def _stage_once(
        self,
        records: Callable[[], DataFrame],
        plan: BatchPlan,
        task: StageTask,
        on_read: Callable[[], None],
    ) -> StagedBatch:
        is_transformed = self.recipe.pipeline.transform is not None
        # Users' code is kept out of the driver, and so are the rows it makes.
        if not is_transformed and self.driver_stage.takes(plan):
            counted = self.driver_stage.counted
            staged = self.driver_stage.stage(
                lambda: self._events(records(), plan, counted),
                plan,
                task,
                on_read=on_read,
            )
            if staged is not None:
                return staged
        self.driver_stage.stand_by()
        observation = Observation()
        count = F.count(F.lit(1)).alias("records")
        events = self._events(
            records(), plan, lambda rows: rows.observe(observation, count)
        )
        if is_transformed:
            # All copies of an event, which a transform may double, must meet.
            tasks = self.tasks()
            share = F.pmod(F.xxhash64(PLACE, OFFSET), F.lit(tasks))
            events = events.repartitionById(tasks, share.cast("int"))
        voted = events.mapInArrow(task, VOTE_SCHEMA)
        lines = voted.collect()
        on_read()
        votes = [parse_vote(line["vote"]) for line in lines]
        own = NOTHING_MEASURED
        if self.python_time is not None:
            own = self.python_time.of(
                voted,
                rows=observation.get["records"],
                tasks=sum(1 for covered in plan.ranges if covered.length),
            )
        return StagedBatch(
            votes=votes,
            records_read=observation.get["records"],
            measures=own + cpu_of_tasks(vote.measures for vote in votes),
        )

    def _events(
        self,
        raw: DataFrame,
        plan: BatchPlan,
        counted: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Return what is staged of a batch's records, wherever the task runs.

        Args:
            raw: The records, as ``choose_columns`` leaves those of a stream.
            plan: The batch's.
            counted: Has Spark count the rows of a frame.
        """
        if self.as_read is not None and plan.run is None:
            return counted(raw)
        built = self.recipe.build(counted(raw), self.lookups.copies, self.places)
        return self.recipe.for_tasks(built, read_columns(self.layout))

    def stage_keys(self, plan: BatchPlan, tally: BatchTally) -> StagedKeys:
        """Run phase 2b: one task for each share of the keys."""
        watermark_us = plan.watermark_after(self.layout.clock_rule, tally)
        tasks = self.tasks()
        task = KeyTask(
            outputs=tuple(self._keyed_outputs()),
            pipeline=self.layout.pipeline,
            claim=self.home.claim,
            voted=tally.attempts,
            sequence=plan.sequence,
            watermark_us=watermark_us,
            planned_at_us=plan.planned_at_us,
            fires_clock_through_us=plan.fires_clock_through_us,
            shards=self.layout.shards,
            tasks=tasks,
            sampling=self.sampling,
        )
        shares = self.spark.range(0, tasks, 1, tasks)
        lines = shares.mapInArrow(task, VOTE_SCHEMA).collect()
        votes = [parse_keyed_vote(line["vote"]) for line in lines]
        return StagedKeys(votes=votes, watermark_us=watermark_us)

    def _keyed_outputs(self) -> Iterator[tuple[StatefulOutput, KeyedTable]]:
        event_time = self.recipe.pipeline.source.event_time
        for number, output in enumerate(self.recipe.pipeline.outputs):
            table = self.layout.outputs[number]
            if isinstance(table, KeyedTable):
                assert isinstance(output, StatefulOutput | JoinOutput)
                types = {
                    column.name: column.postgres_type
                    for column in (*table.key, *table.event_columns)
                }
                yield as_stateful(output, number, event_time, types), table

    def live_from_us(self, plan: BatchPlan) -> int | None:
        """Return the event time before which no ID is remembered; None if all are."""
        return self.layout.expired_before_us(plan.watermark_us)

    def read_ids_ahead(self, progress: Progress) -> None:
        """Have the IDs read that the next batch will be held against.

        It takes seconds where there are many, and Spark takes as long to plan the first
        batch of a query.
        """
        if self.claims is not None:
            self.claims.holder.begin(
                terms_after(progress.last_sequence, progress.watermark_us, self.layout)
            )

    def begin_claims(self, plan: BatchPlan) -> int:
        """Begin a round of claims for a batch; forget the rounds before it."""
        if self.claims is None:
            return _NO_ROUND
        return self.claims.holder.begin(terms_of(plan, self.layout))

    def _review_claims(self, plan: BatchPlan, staged: StagedBatch) -> int | None:
        """Return the round to stage the batch in again, if it must be."""
        if self.claims is None:
            return None
        return self.claims.holder.review(
            sum(vote.ids for vote in staged.votes),
            # A run gives the same rows whenever it is run: of several events of one
            # ID the first counts, and not the one whose task was the quickest.
            in_order=plan.run is not None,
        )

    def _with_searches(self, staged: StagedBatch) -> StagedBatch:
        """Add what looking the batch's IDs up took."""
        if self.claims is None:
            return staged
        searches = Measures(ids=self.claims.holder.searches())
        return replace(staged, measures=staged.measures + searches)

    def task(
        self, plan: BatchPlan, rejected: Sequence[Rejection], claim_round: int
    ) -> StageTask:
        """Return the task that stages a batch's events in a round of claims."""
        pipeline = self.recipe.pipeline
        earliest_us, latest_us = time_bounds(pipeline.source, plan.planned_at_us)
        deduplicate = pipeline.deduplicate
        return StageTask(
            layout=self.layout,
            rules=Rules(
                contracts=self.recipe.contracts,
                earliest_event_time_us=earliest_us,
                latest_event_time_us=latest_us,
                rejected={},
                rule_conditions={
                    rule.reason_code: rule.condition for rule in pipeline.validate
                },
                outputs=self.layout.outputs,
                id_field=self.recipe.aliases.get(EVENT_ID),
            ).rejecting(rejected, self.places),
            places=self.places,
            decoded_fields=self.recipe.decoded_fields(read_columns(self.layout)),
            aliases=self.recipe.aliases,
            declared_databases=pipeline.written_databases,
            claim=self.home.claim,
            sequence=plan.sequence,
            claims=None if self.claims is None else self.claims.address,
            claim_round=claim_round,
            watermark_us=plan.watermark_us,
            is_transformed=pipeline.transform is not None,
            reported=pipeline.reported,
            filter_conditions=self.recipe.filter_conditions,
            keeps_payload_hashes=deduplicate is not None and deduplicate.conflicts,
            hides_keys_of=self.redaction.keys
            if pipeline.monitor.show_keys
            else frozenset(output.table for output in pipeline.outputs),
            sampling=self.sampling,
            planned_at_us=plan.planned_at_us if plan.run is None else None,
        )


def time_bounds(source: Source, now_us: int) -> tuple[int | None, int]:
    """Return the earliest event time that is alive, if there is one, and the latest.

    Both are counted from the database's clock when the batch was planned, so they are
    the same whenever it is staged.
    """
    earliest_us = None
    if source.past_bound is not None:
        earliest_us = now_us - in_microseconds(source.past_bound)
    return earliest_us, now_us + in_microseconds(source.future_bound)
