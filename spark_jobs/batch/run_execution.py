"""A batch run from its claim to its one publish transaction, its input and its report.

A run takes the steps of a stream once: claim an epoch, plan, stage, publish. If a run
ends before the COMMIT, it leaves only staged rows that are never moved, and the same
command does the run again from its beginning. If it ends after the COMMIT, the same
command finds the run's name in the ledger.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

import structlog

from tallyweir.sinks.faultpoints import FaultPoint, making
from tallyweir.sinks.postgres.ledger.batch_runs import (
    read_published_run,
    read_run_counts,
)
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.sinks.protocol.decisions import check_epoch
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.identity import BatchKey, SparkBatchId
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, Progress, Rejection, StagedBatch
from tallyweir.sinks.protocol.votes import EventCounts
from tallyweir.spark_jobs.batch.file_source import FileSource
from tallyweir.spark_jobs.batch.kafka_ranges import KafkaRanges
from tallyweir.spark_jobs.batch.upsert import check_upsert, correcting
from tallyweir.spark_jobs.batches.prepared_pipeline import (
    PipelineFiles,
    PreparedPipeline,
    prepare_pipeline,
)
from tallyweir.spark_jobs.batches.stage_jobs import StageJobs
from tallyweir.spark_jobs.driver.claiming import await_nobody_holds
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.tables.layout_builder import SHARDS

#: Input with an end, the same at every attempt.
BoundedInput: TypeAlias = FileSource | KafkaRanges


class RunExecution:
    """Publishes bounded input as one batch of a pipeline, once by the run's name.

    Args:
        settings: Settings of the driver.
        files: The pipeline, and the files that it names.
        run: The run to do.
        source: Input of the run.
    """

    def __init__(
        self,
        settings: DriverSettings,
        files: PipelineFiles,
        run: BatchRun,
        source: BoundedInput,
    ) -> None:
        self._settings = settings
        self._files = files
        self._run = run
        self._source = source
        self._log = structlog.get_logger().bind(
            pipeline=files.pipeline.name, run=run.name
        )

    def execute(self) -> RunReport:
        """Do the run unless it was done before.

        Raises:
            ConfigurationError: ``RUN_AT_LEAST_ONCE``, ``RUN_NAME_TAKEN``,
                ``RUN_CANNOT_TRUNCATE``, ``RUN_CANNOT_UPSERT``, or another error that a
                person must fix.
            FencedError: A driver, or another run, was started meanwhile.
            RetryableError: The outside world failed; the same call again may succeed.
            FatalError: Going on could lose or double events.

        Crash:
            Before the COMMIT, nothing of the run is visible and its name is free. After
            it, all of the run is visible, and the same call only reports that.
        """
        run = self._run
        _check_guarantee(self._files.pipeline.guarantee)
        if run.corrects:
            check_upsert(self._files.pipeline)
        migrate(self._settings.home_dsn)
        if (done := self._find_done()) is not None:
            return self._report(done, was_done=True)
        prepared = prepare_pipeline(self._settings, self._files)
        if run.corrects:
            layout = correcting(prepared.layout, self._files.pipeline)
            prepared = replace(prepared, layout=layout)
        with closing(prepared.open_home(run=run.name)) as home:
            await_nobody_holds(home, threading.Event(), self._log)
            home.claim_epoch()
            # The claim that this run waited for may have done the run.
            if (done := self._find_done()) is not None:
                return self._report(done, was_done=True)
            counts = self._publish(prepared, home)
        return self._report(counts, was_done=False)

    def _report(self, counts: EventCounts, *, was_done: bool) -> RunReport:
        if was_done:
            self._log.info("run was done before")
        else:
            self._log.info("run published", **asdict(counts))
        return RunReport(run=self._run, counts=counts, was_done=was_done)

    def _find_done(self) -> EventCounts | None:
        """Return the counts of the run's input if it was published before."""
        pipeline, run = self._files.pipeline.name, self._run
        name = "tallyweir batch"
        with connect(self._settings.home_dsn, application_name=name) as connection:
            if not run.is_done(read_published_run(connection, pipeline, run.name)):
                return None
            return read_run_counts(connection, pipeline, run.name)

    def _publish(self, prepared: PreparedPipeline, home: PostgresHome) -> EventCounts:
        run, source = self._run, self._source
        claim = f"{home.claim.epoch}-{uuid.uuid4().hex[:12]}"
        with (
            prepared.opened_databases(home) as databases,
            prepared.opened_jobs(
                home,
                claim=claim,
                places=SourcePlaces((run.topic,)),
                # A run may be large: with more tasks, each one holds less.
                tasks=lambda: SHARDS,
            ) as jobs,
        ):
            with making(FaultPoint.PLANNED):
                plan = _plan(home, jobs, run, source)
            self._log.info("run planned", epoch=plan.key.epoch, inputs=len(run.inputs))
            raw = source.read(prepared.spark)

            def stage(plan: BatchPlan, rejected: Sequence[Rejection]) -> StagedBatch:
                staged = jobs.stage_events(lambda: raw, plan, rejected)
                source.check_unchanged()
                return staged

            result = jobs.coordinator(databases.publisher).run_batch(plan, stage)
            with making(FaultPoint.SEALED):
                databases.tidy(live_from_us=jobs.live_from_us(plan))
        return result.tally.counts


def _plan(
    home: PostgresHome, jobs: StageJobs, run: BatchRun, source: BoundedInput
) -> BatchPlan:
    progress = home.read_progress()
    epoch = home.claim.epoch
    check_epoch(epoch, progress.newest_epoch)
    if run.replaces:
        _check_replaceable(jobs.layout, progress)
    planned_at_us = home.read_clock_us()
    jobs.lookups.refresh(planned_at_us)
    return BatchPlan(
        key=BatchKey(epoch=epoch, spark_batch_id=SparkBatchId(0)),
        ranges=[
            OffsetRange(
                topic_partition=TopicPartition(run.topic, given.partition),
                # Nothing comes before the first offset, and the law ignores gaps in a
                # range.
                from_offset=0,
                until_offset=until_offset,
            )
            for given, until_offset in zip(
                run.inputs, source.until_offsets, strict=True
            )
        ],
        watermark_us=None if run.replaces else progress.watermark_us,
        after_sequence=progress.last_sequence,
        clocks=progress.clocks,
        planned_at_us=planned_at_us,
        topic_ids={run.topic: run.name},
        lookups=jobs.versions,
        run=run,
    )


def _check_guarantee(guarantee: Guarantee) -> None:
    if guarantee is Guarantee.AT_LEAST_ONCE:
        raise ConfigurationError(
            "RUN_AT_LEAST_ONCE",
            saw="The pipeline writes at_least_once.",
            why="A run happens once under its name; an interrupted one would leave "
            "rows behind.",
            fix="Load with a pipeline of another name that writes exactly_once.",
        )


def _check_replaceable(layout: PipelineLayout, progress: Progress) -> None:
    """Check that the run can replace everything that it would truncate."""
    obstacles = {
        "reads a stream, whose events would be lost": progress.clocks,
        "has outputs in other databases or in branches": layout.branches,
        "keeps state for keys": layout.keyed,
    }
    for obstacle, is_there in obstacles.items():
        if is_there:
            raise ConfigurationError(
                "RUN_CANNOT_TRUNCATE",
                saw=f"The pipeline {obstacle}.",
                why="A truncating run replaces everything before it in one "
                "transaction of the home database.",
                fix="Append, or load into a pipeline with a name and tables of its "
                "own.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of a run.

    Attributes:
        counts: Counts of its input by outcome, now or when it was done.
        was_done: The run was published before, and this call did nothing.
    """

    run: BatchRun
    counts: EventCounts
    was_done: bool

    def __str__(self) -> str:
        if self.was_done:
            return f"Run {self.run.name} was published before; nothing was changed."
        parts = asdict(self.counts)
        read = parts.pop("read")
        told = ", ".join(f"{count:,} {name}" for name, count in parts.items())
        return f"Run {self.run.name} is published: {read:,} read: {told}."
