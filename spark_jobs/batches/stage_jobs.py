"""The Spark jobs of a batch: phase one stages its events, phase 2b its keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.schemas.pipeline.checks.durations import in_microseconds
from tallyweir.schemas.pipeline.events.source import Source
from tallyweir.schemas.pipeline.outputs.stateful import Stateful
from tallyweir.schemas.pipeline.redaction import Redaction
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.protocol.coordinator import Coordinator
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.measures import NOTHING_MEASURED, Measures, cpu_of_tasks
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    Progress,
    Rejection,
    StagedBatch,
    StagedKeys,
)
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.vote_text import parse_keyed_vote, parse_vote
from tallyweir.sinks.protocol.votes import BatchTally
from tallyweir.spark_jobs.batches.driver_stage import DriverStage
from tallyweir.spark_jobs.batches.open_id_holder import IdClaims, terms_after, terms_of
from tallyweir.spark_jobs.frame.event_frame import EventFrameRecipe
from tallyweir.spark_jobs.frame.lookups import Lookups
from tallyweir.spark_jobs.frame.python_time import PythonTime
from tallyweir.spark_jobs.keyed.joined_events import as_stateful
from tallyweir.spark_jobs.keyed.key_task import KeyTask
from tallyweir.spark_jobs.registry.known_schemas import KnownSchemas
from tallyweir.spark_jobs.source.event_columns import OFFSET, PLACE
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.tables.layout_builder import read_columns
from tallyweir.spark_jobs.task.record_columns import RecordColumns
from tallyweir.spark_jobs.task.sampling import Sampling
from tallyweir.spark_jobs.task.stage_task import VOTE_SCHEMA, StageTask
from tallyweir.spark_jobs.task.verdicts import IdRules, Rules

#: Most times that a batch is staged.
_STAGINGS_MAX = 5
_NO_ROUND = 0


def _nobody_asks() -> None:
    """Do nothing when records have been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJobs:
    """Runs the Spark jobs of one claim; each job collects the votes of its tasks.

    The jobs are the same for a batch of a stream and for a batch run.
    """

    spark: SparkSession
    home: PostgresHome
    layout: PipelineLayout
    recipe: EventFrameRecipe
    lookups: Lookups
    #: Topics under which the positions of events are noted.
    places: SourcePlaces
    #: Answers claims of IDs by tasks; None if the pipeline does not deduplicate by ID.
    claims: IdClaims | None
    #: Stages the small batches.
    driver_stage: DriverStage
    #: Columns that tasks need of a stream's records; None if Spark computes some.
    as_read: Sequence[Column] | None
    #: Returns the number of tasks that Spark can run now.
    tasks: Callable[[], int]
    #: Measures the pipeline's own Python and models; None if it has neither.
    python_time: PythonTime | None
    #: Fields of the rows that are never shown.
    redaction: Redaction
    #: Samples of the rows that are kept for people; None for none.
    sampling: Sampling | None
    #: What is known of the schema registry; None if files have the contracts.
    known_schemas: KnownSchemas | None = None

    @property
    def versions(self) -> dict[str, str]:
        """Versions of lookups and models, for the ledger."""
        return {**self.lookups.versions, **self.recipe.model_versions}

    def coordinator(self, publisher: Publisher) -> Coordinator:
        """Return what takes a batch through both phases and publishes it."""
        return Coordinator(publisher, self.stage_keys if self.layout.keyed else None)

    def choose_columns(self, stream: DataFrame) -> DataFrame:
        """Select only the columns of a stream's records that tasks need.

        Selecting them in each batch would copy them once more: Spark copies the columns
        of a stream into a batch, and copies them again if the batch selects some.
        """
        return stream if self.as_read is None else stream.select(*self.as_read)

    def leave_out(
        self, records: DataFrame, before: Mapping[TopicPartition, int]
    ) -> DataFrame:
        """Filter out records before some offsets, after ``choose_columns``."""
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
        """Run phase one, and repeat it until its result is reliable.

        When an executor is lost, its shuffled rows are lost too. Spark reads the source
        again for other tasks than those that had the rows already, and adds these
        records to the same observation. So a count above that of the tasks means a lost
        executor, or lost rows. Only lost rows give such a count again when the batch is
        staged again; ``tally_votes`` handles them.

        Args:
            records: Makes a frame of the batch's records, as Spark's source gives them.
                Not called if the driver reads the records itself.
            plan: Plan of the batch.
            rejected: Rows of the batch that tables have refused so far.
            on_read: Called each time that all records have been read.

        Raises:
            RetryableError: ``STAGING_UNSETTLED``, or as ``KnownSchemas.resolve``.
            TallyweirError: The error that a task has returned instead of a vote.
        """
        claim_round = self.begin_claims(plan)
        if self.known_schemas is not None:
            self.known_schemas.forget_absent()
        for _ in range(_STAGINGS_MAX):
            staged, claim_round = self._stage_known(
                records, plan, rejected, claim_round, on_read
            )
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
            why="An event could be dropped in favour of a copy that was never staged.",
            fix="Nothing to do if it passes; otherwise make the pipeline's own "
            "Python return the same rows at each run.",
        )

    def _stage_known(
        self,
        records: Callable[[], DataFrame],
        plan: BatchPlan,
        rejected: Sequence[Rejection],
        claim_round: int,
        on_read: Callable[[], None],
    ) -> tuple[StagedBatch, int]:
        """Stage the batch until every schema that it names has been asked for.

        Returns:
            The staged batch, and the round of claims that it belongs to.
        """
        while True:
            task = self.task(plan, rejected, claim_round)
            staged = self._stage_once(records, plan, task, on_read)
            wanted = {one for vote in staged.votes for one in vote.wanted_schemas}
            if not wanted:
                return staged, claim_round
            assert self.known_schemas is not None, "only a registry's ids are wanted"
            self.known_schemas.resolve(wanted)
            claim_round = self.begin_claims(plan)

    def _stage_once(
        self,
        records: Callable[[], DataFrame],
        plan: BatchPlan,
        task: StageTask,
        on_read: Callable[[], None],
    ) -> StagedBatch:
        is_transformed = self.recipe.pipeline.transform is not None
        # Keep users' code, and the rows that it makes, out of the driver.
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
            # A transform may copy an event; all copies must reach the same task.
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
        """Return the events to stage of a batch's records, wherever the task runs.

        Args:
            raw: The records; those of a stream as ``choose_columns`` returns them.
            plan: Plan of the batch.
            counted: Lets Spark count the rows of a frame.
        """
        if self.as_read is not None and plan.run is None:
            return counted(raw)
        recipe = self._recipe_now()
        built = recipe.build(counted(raw), self.lookups.copies, self.places)
        return recipe.for_tasks(built, read_columns(self.layout))

    def _recipe_now(self) -> EventFrameRecipe:
        """Return the recipe with all writers that the registry has told so far."""
        if self.known_schemas is None:
            return self.recipe
        return replace(self.recipe, contracts=self.known_schemas.contracts)

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

    def _keyed_outputs(self) -> Iterator[tuple[Stateful, KeyedTable]]:
        event_time = self.recipe.pipeline.source.event_time
        for table in self.layout.keyed:
            number = self.layout.outputs.index(table)
            output = self.recipe.pipeline.outputs[number]
            types = {
                column.name: "text" if column.is_text else column.postgres_type
                for column in (*table.key, *table.event_columns)
            }
            yield as_stateful(output, number, event_time, types), table

    def live_from_us(self, plan: BatchPlan) -> int | None:
        """Return the event time before which no ID is remembered; None if all are."""
        return self.layout.expired_before_us(plan.watermark_us)

    def read_ids_ahead(self, progress: Progress) -> None:
        """Begin to read the IDs that the next batch needs.

        Reading many IDs takes seconds, and Spark takes as long to plan the first batch
        of a query.
        """
        if self.claims is not None:
            self.claims.holder.begin(
                terms_after(progress.last_sequence, progress.watermark_us, self.layout)
            )

    def begin_claims(self, plan: BatchPlan) -> int:
        """Begin a round of claims for a batch, and forget former rounds."""
        if self.claims is None:
            return _NO_ROUND
        return self.claims.holder.begin(terms_of(plan, self.layout))

    def _review_claims(self, plan: BatchPlan, staged: StagedBatch) -> int | None:
        """Return a new round if the batch must be staged again; otherwise None."""
        if self.claims is None:
            return None
        return self.claims.holder.review(
            sum(vote.ids for vote in staged.votes),
            # A run must give the same rows each time: if several events have one ID,
            # the first one counts, not the one of the fastest task.
            in_order=plan.run is not None,
        )

    def _with_searches(self, staged: StagedBatch) -> StagedBatch:
        """Add the measures of the lookups of the batch's IDs."""
        if self.claims is None:
            return staged
        searches = Measures(ids=self.claims.holder.searches())
        return replace(staged, measures=staged.measures + searches)

    def record_columns(self, read: Collection[str]) -> RecordColumns:
        """Return what tasks read of records themselves, for some columns of events."""
        return RecordColumns(
            places=self.places,
            fields=self.recipe.decoded_fields(read),
            copied=self.recipe.copied_columns(read),
        )

    def task(
        self, plan: BatchPlan, rejected: Sequence[Rejection], claim_round: int
    ) -> StageTask:
        """Return the task that stages a batch's events in a round of claims."""
        pipeline = self.recipe.pipeline
        earliest_us, latest_us = time_bounds(pipeline.source, plan.planned_at_us)
        return StageTask(
            layout=self.layout,
            rules=Rules(
                contracts=self._recipe_now().contracts,
                earliest_event_time_us=earliest_us,
                latest_event_time_us=latest_us,
                rejected={},
                rule_conditions={
                    rule.reason_code: rule.condition for rule in pipeline.validate
                },
                outputs=self.layout.outputs,
                watermark_us=plan.watermark_us,
                ids=self._id_rules(plan),
                id_field=self.recipe.id_field,
            ).rejecting(rejected, self.places),
            places=self.places,
            reads=self.record_columns(read_columns(self.layout)),
            id_parts=self.recipe.id_parts,
            aliases=self.recipe.aliases,
            declared_databases=pipeline.written_databases,
            claim=self.home.claim,
            sequence=plan.sequence,
            claims=None if self.claims is None else self.claims.address,
            claim_round=claim_round,
            is_transformed=pipeline.transform is not None,
            reported=pipeline.reported,
            filter_conditions=self.recipe.filter_conditions,
            hides_keys_of=self.redaction.keys
            if pipeline.monitor.show_keys
            else frozenset(output.table for output in pipeline.outputs),
            sampling=self.sampling,
            planned_at_us=plan.planned_at_us if plan.run is None else None,
        )

    def _id_rules(self, plan: BatchPlan) -> IdRules | None:
        deduplicate = self.recipe.pipeline.deduplicate
        if deduplicate is None:
            return None
        return IdRules(
            bucket_seconds=self.layout.bucket_seconds,
            expired_before_us=self.layout.expired_before_us(plan.watermark_us),
            upserts=self.layout.corrected_by is not None,
            keeps_payload_hashes=deduplicate.conflicts,
        )


def time_bounds(source: Source, now_us: int) -> tuple[int | None, int]:
    """Return the earliest valid event time, if it is bounded, and the latest.

    Both are relative to the database's clock when the batch was planned, so they are
    the same each time it is staged.
    """
    earliest_us = None
    if source.past_bound is not None:
        earliest_us = now_us - in_microseconds(source.past_bound)
    return earliest_us, now_us + in_microseconds(source.future_bound)
