"""The driver: one process that runs one pipeline until it is told to stop.

At every start, and again after every failure of Kafka, Postgres or Spark, it claims an
epoch, reads the offsets from Postgres and gives Spark a fresh checkpoint directory. So
there is only one way to begin, and it is also the way to recover.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import structlog
from pyspark.sql.streaming.query import StreamingQuery

from tallyweir.schemas.pipeline import Pipeline
from tallyweir.sinks.kafka_admin import DRIVER_TIMEOUT_S, KafkaAdmin
from tallyweir.sinks.postgres.ledger.epoch_claims import Drain
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.columns import qualified
from tallyweir.sinks.protocol.batch_run import streamed
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FencedError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.recovery import BrokerPosition, topic_ids
from tallyweir.sinks.protocol.votes import EventCounts
from tallyweir.spark_jobs.batches.batch_report import BatchReport
from tallyweir.spark_jobs.batches.bridge import Bridge
from tallyweir.spark_jobs.batches.prepared_pipeline import (
    BridgeParts,
    ClaimedDatabases,
    PreparedPipeline,
    prepare_pipeline,
    read_pipeline_files,
)
from tallyweir.spark_jobs.driver.claiming import OwnClaims, await_nobody_holds
from tallyweir.spark_jobs.driver.dead_letter_watch import DeadLetterWatch
from tallyweir.spark_jobs.driver.driver_metrics import DriverMetrics
from tallyweir.spark_jobs.driver.pipeline_drain import PipelineDrain
from tallyweir.spark_jobs.driver.version_watch import VersionWatch
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.kept_memory import leave_lasting_objects
from tallyweir.spark_jobs.engine.program import dead_told
from tallyweir.spark_jobs.engine.spark_failure import query_failed
from tallyweir.spark_jobs.scaling.scaler import Scaler, open_scaler
from tallyweir.spark_jobs.source.kafka_source import read_starts, read_stream
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.source.topic_watch import TopicWatch

#: How often the driver checks whether it is told to stop.
_POLL_S = 0.2
#: How long the current batch may take to end after SIGTERM.
FINISH_TIMEOUT_S = 120.0
#: Pauses before the driver starts over after a failure.
_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: The longest pause while a server is away, so that the driver goes on soon after.
_PATIENT_PAUSE_MAX_S = 5.0
#: The driver gives up after this many failures in a row, without those in _PATIENT.
_FAILURES_MAX = 5
#: For these conditions the driver waits as long as they last. If it gave up, an
#: operator would have to start it again.
_PATIENT = frozenset(
    {
        "FENCED_FOR_NOW",
        "KAFKA_UNREACHABLE",
        "PAUSED",
        "POSTGRES_CONNECTIONS",
        "POSTGRES_UNREACHABLE",
        "REGISTRY_UNAVAILABLE",
        "TABLE_LOCKED",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """The parts that all claims of one process share."""

    pipeline: PreparedPipeline
    admin: KafkaAdmin
    scaler: Scaler


class Driver:
    """Runs one pipeline.

    Args:
        settings: The driver's settings.
        pipeline: The pipeline, valid against its contract.
        pipeline_file: The pipeline's file; the paths of contracts start at its folder.
        once: Whether to stop when everything now in the topics is committed.
        stop: Set when the driver must end after the current batch.
    """

    def __init__(
        self,
        settings: DriverSettings,
        pipeline: Pipeline,
        *,
        pipeline_file: Path,
        once: bool,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._pipeline_file = pipeline_file
        self._once = once
        self._stop = stop
        self._pauses = 0
        self._failures = 0
        self._counts = EventCounts()
        self._claims = OwnClaims()
        self._dead_letters = DeadLetterWatch(pipeline.name, pipeline.dead_letter_limit)
        self._version = VersionWatch(settings.home_dsn, pipeline.name)
        self._log = structlog.get_logger().bind(
            pipeline=pipeline.name, guarantee=pipeline.guarantee.value
        )
        self._drain = PipelineDrain(settings, pipeline.name, self._log)
        #: The metrics of this process; serving them is optional.
        self.metrics = DriverMetrics(pipeline.name, pipeline.guarantee)

    def run(self) -> EventCounts:
        """Run until stopped or drained, or until the topics are read to their ends.

        Returns:
            The numbers of events read, by what became of them.

        Raises:
            ConfigurationError: An operator must change something.
            FencedError: A newer driver has taken over.
            RetryableError: Kafka, Postgres or Spark failed too often; the pipeline has
                other tables since the start; or the driver runs ``once`` and finds the
                pipeline paused.
            FatalError: Going on could lose or double events.
        """
        if self._stop.is_set():
            return self._counts
        prepared = self._prepare()
        while not self._stop.is_set():
            try:
                self._claim_and_run(prepared)
            except TallyweirError as error:
                if not self._may_pass(error):
                    self._version.check_failure(error)
                    raise
                self._pause_after(error)
                continue
            if not prepared.scaler.wants_new_query:
                break
        return self._counts

    def _prepare(self) -> _Prepared:
        """Check all servers and files before the first claim."""
        admin = KafkaAdmin(
            self._settings.kafka_bootstrap,
            *self._pipeline.source.topics,
            timeout_s=DRIVER_TIMEOUT_S,
        )
        try:
            files = read_pipeline_files(
                self._pipeline, self._pipeline_file, self._settings.home_dsn
            )
            admin.read_positions()
            migrate(self._settings.home_dsn)
            pipeline = prepare_pipeline(self._settings, files)
            scaler = open_scaler(pipeline, self._log)
            # A driver that runs once ends before scaling would help.
            if not self._once:
                scaler.start()
        except RetryableError as error:
            # Before the first start no address has worked yet, so a server that does
            # not answer is more likely a wrong address than an outage.
            raise ConfigurationError(
                error.code, saw=error.saw, why=error.why, fix=error.fix
            ) from error
        if pipeline.known_schemas is not None:
            pipeline.known_schemas.compare()
        return _Prepared(pipeline=pipeline, admin=admin, scaler=scaler)

    def _claim_and_run(self, prepared: _Prepared) -> None:
        """Claim an epoch and run one query under it until it ends.

        A driver that starts over must not fence a driver that superseded it in the
        meantime. Otherwise two drivers would take the pipeline from each other without
        end.
        """
        # Check both first; otherwise every retry during an outage claims an epoch.
        prepared.admin.read_topic_ids()
        if prepared.pipeline.known_schemas is not None:
            prepared.pipeline.known_schemas.resolve_awaited()
        with closing(prepared.pipeline.open_home()) as home:
            self._claims.check_not_superseded(home)
            if self._once:
                home.check_not_paused()
            await_nobody_holds(home, self._stop, self._log)
            if self._stop.is_set():
                return
            self._claims.claim(home)
            self._version.begin()
            try:
                with prepared.pipeline.opened_databases(home) as databases:
                    self._run_claim(prepared, databases)
            except FencedError as fenced:
                self._claims.check_not_superseded(home)
                raise RetryableError(
                    "FENCED_FOR_NOW",
                    saw="The pipeline was paused, or a batch run has taken it over.",
                    why="Only one claim can publish at a time.",
                    fix="Nothing to do: the driver goes on after the pause or the "
                    "batch run.",
                ) from fenced

    def _run_claim(self, prepared: _Prepared, databases: ClaimedDatabases) -> None:
        """Run one query under the claim for which the databases were opened."""
        home = databases.home
        claim = f"{home.claim.epoch}-{uuid.uuid4().hex[:12]}"
        progress = home.read_progress()
        starts = read_starts(prepared.admin, home, progress, self._log)
        with prepared.pipeline.opened_jobs(
            home,
            claim=claim,
            places=SourcePlaces(self._pipeline.source.topics),
            tasks=lambda: prepared.pipeline.parallelism,
        ) as jobs:
            parts = BridgeParts(
                databases=databases,
                jobs=jobs,
                admin=prepared.admin,
                checkpoint=self._settings.fresh_directory(
                    "checkpoints", self._pipeline.name, claim
                ),
                starts=starts,
            )
            asked = self._drain.find()
            if asked is not None:
                self._run_drain(asked, parts)
                return
            jobs.read_ids_ahead(progress)
            self._log.info(
                "driver started",
                epoch=home.claim.epoch,
                tables=[
                    qualified(table)
                    for output in home.layout.outputs
                    for table in output.tables
                ],
                positions={str(tp): offset for tp, offset in sorted(starts.items())},
            )
            self._run_query(prepared, parts)

    def _run_drain(self, asked: Drain, parts: BridgeParts) -> None:
        """Drain the pipeline without reading anything more.

        A driver that runs ``once`` then raises that the pipeline is paused, because it
        has not read to the end. A driver that is told to stop leaves the rest of the
        drain to the next driver.
        """
        bridge = Bridge(
            parts,
            ahead_max=0,
            on_planned=self._note_planned,
            on_published=self._note_batch,
        )
        is_drained = self._drain.end(asked, parts, bridge, self._stop.is_set)
        if self._once and is_drained:
            parts.home.check_not_paused()

    def _run_query(self, prepared: _Prepared, parts: BridgeParts) -> None:
        scaler = prepared.scaler
        batch_offsets_max = scaler.begin(parts.home.claim, parts.starts)
        bridge = Bridge(
            parts,
            # A driver that runs once does not read events that arrive after its start.
            ahead_max=0 if self._once else batch_offsets_max,
            on_planned=self._note_planned,
            on_published=partial(self._note_published, parts.home, scaler),
        )
        stream = read_stream(
            prepared.pipeline.spark,
            replace(self._settings, batch_offsets_max=batch_offsets_max),
            self._pipeline,
            parts.starts,
        )
        writer = (
            parts.jobs.choose_columns(stream)
            .writeStream.foreachBatch(bridge)
            # Do not escape it as a URI: Hadoop takes escapes for parts of a name.
            .option("checkpointLocation", f"file://{parts.checkpoint}")
        )
        writer = (
            writer.trigger(availableNow=True)
            if self._once
            else writer.trigger(processingTime="0 seconds")
        )
        ids = topic_ids(streamed(parts.home.read_progress().positions))
        leave_lasting_objects()
        query = writer.start()
        self.metrics.note_started(parts.epoch, parts.starts)
        try:
            with TopicWatch(
                prepared.admin,
                ids,
                self._log,
                on_positions=partial(self._note_positions, bridge, scaler),
            ) as watch:
                self._await(query, bridge, watch, scaler)
        finally:
            bridge.begin_no_more()
            query.stop()
            bridge.end(FINISH_TIMEOUT_S)
            self.metrics.note_ended(failed=bridge.failure is not None)
        if bridge.failure is not None:
            raise bridge.failure

    def _await(
        self, query: StreamingQuery, bridge: Bridge, watch: TopicWatch, scaler: Scaler
    ) -> None:
        while query.isActive:
            if watch.failure is not None:
                raise watch.failure
            if self._stop.is_set() or scaler.wants_new_query:
                at_rest = bridge.finish(FINISH_TIMEOUT_S)
                self._log.info("at rest" if at_rest else "stopped in mid-batch")
                return
            bridge.tick()
            self._stop.wait(_POLL_S)
        failed = query.exception()
        if failed is not None:
            # The bridge knows the original error; Spark passes on only its message.
            raise bridge.failure or query_failed(failed) from failed
        # All is read. Windows and timers that this made due belong to the same run.
        bridge.run_all_due(self._stop.is_set)

    def _may_pass(self, error: TallyweirError) -> bool:
        """Count a failure, and return whether starting over may help.

        A server that comes back fails in other ways at first. So failures while it was
        away do not count together with those.
        """
        if not isinstance(error, RetryableError) or error.code == "TABLES_SWITCHED":
            return False
        if self._once and error.code == "PAUSED":
            return False
        if error.code not in _PATIENT or self._once:
            self._failures += 1
        return self._failures < _FAILURES_MAX

    def _pause_after(self, error: TallyweirError) -> None:
        """Wait before starting over, longer after each failure in a row."""
        self._pauses += 1
        pause_s = _BACKOFF_S[min(self._pauses, len(_BACKOFF_S)) - 1]
        if error.code in _PATIENT:
            pause_s = min(pause_s, _PATIENT_PAUSE_MAX_S)
        self._log.warning(
            "starting over",
            error_code=error.code,
            saw=error.saw,
            fix=error.fix,
            retry_in_s=pause_s,
        )
        self._stop.wait(pause_s)

    def _note_planned(self, plan: BatchPlan) -> None:
        self._log.debug(
            "batch planned",
            epoch=plan.key.epoch,
            sequence=plan.sequence,
            ranges=_text(plan),
        )

    def _note_positions(
        self,
        bridge: Bridge,
        scaler: Scaler,
        positions: Mapping[TopicPartition, BrokerPosition],
    ) -> None:
        ends = {place: at.log_end_offset for place, at in positions.items()}
        self.metrics.note_ends(ends)
        bridge.note_partitions(ends)
        if not self._once:
            scaler.look(ends)

    def _note_published(
        self, home: PostgresHome, scaler: Scaler, report: BatchReport
    ) -> None:
        self._pauses = self._failures = 0
        counts = report.result.tally.counts
        self._counts += counts
        if self._counts.is_all_dead and self._counts == counts:
            self._log.warning(
                "nothing but dead letters", told=dead_told(self._pipeline.name, counts)
            )
        dead: dict[str, int] | None = {}
        if counts.dead:
            try:
                dead = home.count_dead_letters(report.plan.sequence)
            except TallyweirError:
                # The batch is published; the next batch will report the error.
                dead = None
        self.metrics.note_published(report, dead)
        scaler.note_published(report)
        self._note_batch(report)
        self._version.check_batch()
        self._dead_letters.check_batch(
            self._settings.home_dsn, read=counts.read, dead=counts.dead
        )

    def _note_batch(self, report: BatchReport) -> None:
        self._log.info(
            "batch published",
            epoch=report.plan.key.epoch,
            sequence=report.plan.sequence,
            **asdict(report.result.tally.counts),
            seconds=round(report.seconds, 3),
        )


def _text(plan: BatchPlan) -> str:
    return ", ".join(str(planned) for planned in plan.ranges if planned.length)
