"""A driver: one process that runs one pipeline until it is told to stop.

At every start, and again after every failure of the outside world, it claims an
epoch, reads the offsets from Postgres and gives Spark a fresh checkpoint directory.
So there is one way to begin, and it is the way of recovery.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.contract import load_contract, versions_of
from sinks.postgres.branch_names import HOME
from sinks.postgres.home import PostgresHome
from sinks.postgres.home_layout import HomeLayout
from sinks.postgres.migrations import migrate
from sinks.postgres.participant import PostgresParticipant
from sinks.postgres.preflight import check_distinct
from sinks.protocol.decisions import check_epoch
from sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)
from sinks.protocol.identity import Epoch
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.ports import BatchPlan
from sinks.protocol.publication import Publisher
from sinks.protocol.recovery import decide_start, topic_ids
from spark_jobs.bridge import BatchReport, Bridge
from spark_jobs.bridge_parts import BridgeParts
from spark_jobs.driver_metrics import DriverMetrics
from spark_jobs.event_frame import EventFrameRecipe
from spark_jobs.home_layout import SHARDS, build_home_layout
from spark_jobs.kafka_admin import KafkaAdmin, TopicState
from spark_jobs.kafka_source import empty_batch, read_stream
from spark_jobs.lookups import Lookups, open_lookups
from spark_jobs.model_file import read_model
from spark_jobs.pipeline import Pipeline
from spark_jobs.predictor import Predictor
from spark_jobs.session import start_session
from spark_jobs.settings import DriverSettings
from spark_jobs.spark_failure import what_failed
from spark_jobs.topic_watch import TopicWatch

#: How often the driver looks whether it is told to stop.
_POLL_S = 0.2
#: How long the batch at hand may take to end after SIGTERM.
DRAIN_TIMEOUT_S = 120.0
#: Pauses between tries while the outside world is down.
_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: The longest of them while a server is away, for the driver to follow it back soon.
_PATIENT_PAUSE_MAX_S = 5.0
#: Failures in a row that are not an unreachable server.
_FAILURES_MAX = 5
#: These last as long as they last; giving up would need a person to start again.
_PATIENT = frozenset({"KAFKA_UNREACHABLE", "POSTGRES_UNREACHABLE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """What is the same for every start within one process."""

    spark: SparkSession
    recipe: EventFrameRecipe
    layout: HomeLayout
    lookups: Lookups
    admin: KafkaAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class _Databases:
    """What one claim works with."""

    home: PostgresHome
    participants: Sequence[PostgresParticipant]
    publisher: Publisher


class Driver:
    """Runs one pipeline.

    Args:
        settings: Where things are.
        pipeline: The pipeline, valid against its contract.
        pipeline_file: The file it came from, beside which contracts are looked for.
        once: Whether to stop when all that is in the topic now is committed.
    """

    def __init__(
        self,
        settings: DriverSettings,
        pipeline: Pipeline,
        *,
        pipeline_file: Path,
        once: bool,
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._pipeline_file = pipeline_file
        self._once = once
        self._stop = threading.Event()
        self._pauses = 0
        self._failures = 0
        self._epoch: Epoch | None = None
        self._log = structlog.get_logger().bind(pipeline=pipeline.name)
        #: Of this process; nobody has to look at them.
        self.metrics = DriverMetrics(pipeline.name)

    def request_stop(self) -> None:
        """Ask the driver to end after the batch at hand; safe in a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Run until stopped, or until the topic is read to its end.

        Raises:
            ConfigurationError: Someone must change something.
            FencedError: A newer driver has taken over.
            RetryableError: The outside world failed too often.
            FatalError: Going on could lose or double events.
        """
        prepared = self._prepare()
        while not self._stop.is_set():
            try:
                self._claim_and_run(prepared)
            except RetryableError as error:
                self._pause_after(error)
                continue
            return

    def _prepare(self) -> _Prepared:
        """Check everything outside before the first claim: all of it must be there."""
        contract = load_contract(self._pipeline.source.schema, self._pipeline_file)
        writers = versions_of(contract)
        models = [
            read_model(prediction, self._pipeline_file)
            for prediction in self._pipeline.predict
        ]
        admin = KafkaAdmin(self._settings.kafka_bootstrap, self._pipeline.source.topic)
        try:
            admin.read_positions()
            migrate(self._settings.home_dsn)
            spark = start_session(self._settings, name=self._pipeline.name)
            lookups = open_lookups(
                spark, self._settings, self._pipeline.enrich, self._pipeline_file
            )
            lookups.refresh(0)
        except RetryableError as error:
            # Before the first start nothing is known to be right, so a server that
            # does not answer is more likely a wrong address than an outage.
            raise ConfigurationError(
                error.code, saw=error.saw, why=error.why, fix=error.fix
            ) from error
        recipe = EventFrameRecipe(
            pipeline=self._pipeline,
            contract=contract,
            writers=writers,
            shards=SHARDS,
            shard_seed=self._pipeline.name,
            predictors=[Predictor(spark, model) for model in models],
        )
        events = recipe.build(empty_batch(spark), lookups.frames)
        layout = build_home_layout(self._pipeline, contract, events.schema)
        return _Prepared(
            spark=spark, recipe=recipe, layout=layout, lookups=lookups, admin=admin
        )

    def _claim_and_run(self, prepared: _Prepared) -> None:
        """Claim an epoch and run one query under it until it ends.

        A driver that starts over must not fence whoever superseded it meanwhile, or
        two drivers would take the pipeline from each other for ever.
        """
        # Asked before, or each try during an outage would claim an epoch.
        prepared.admin.read_topic_id()
        dsns = {
            database: self._dsn_of(database)
            for database in (HOME, *prepared.layout.databases)
        }
        check_distinct(dsns)
        home = PostgresHome(self._settings.home_dsn, prepared.layout)
        with ExitStack() as opened:
            opened.callback(home.close)
            if self._epoch is not None:
                check_epoch(self._epoch, home.read_progress().newest_epoch)
            self._epoch = home.claim_epoch()
            participants = [
                PostgresParticipant(
                    dsns[database], database, prepared.layout, home.claim
                )
                for database in prepared.layout.databases
            ]
            for participant in participants:
                opened.callback(participant.close)
            publisher = Publisher(home, participants)
            publisher.start()
            home.drop_superseded_staging()
            databases = _Databases(
                home=home, participants=participants, publisher=publisher
            )
            self._run_query(prepared, self._start_bridge(prepared, databases))

    def _dsn_of(self, database: str) -> str:
        if database == HOME:
            return self._settings.home_dsn
        return self._settings.databases[database]

    def _start_bridge(
        self, prepared: _Prepared, databases: _Databases
    ) -> tuple[Bridge, BridgeParts]:
        home = databases.home
        epoch = home.claim.epoch
        claim = f"{epoch}-{uuid.uuid4().hex[:12]}"
        starts = self._read_starts(prepared.admin, home)
        parts = BridgeParts(
            spark=prepared.spark,
            home=home,
            participants=databases.participants,
            publisher=databases.publisher,
            layout=prepared.layout,
            recipe=prepared.recipe,
            lookups=prepared.lookups,
            admin=prepared.admin,
            epoch=epoch,
            checkpoint=self._fresh_directory("checkpoints", claim),
            starts=starts,
            cache_directory=self._fresh_directory("seen_ids", claim).parent,
            cache_key=claim,
            tasks=min(prepared.spark.sparkContext.defaultParallelism, SHARDS),
        )
        self._log.info(
            "driver started",
            epoch=epoch,
            positions={str(tp): offset for tp, offset in sorted(starts.items())},
        )
        bridge = Bridge(
            parts,
            on_planned=self._note_planned,
            on_published=partial(self._note_published, home),
        )
        return bridge, parts

    def _read_starts(
        self, admin: KafkaAdmin, home: PostgresHome
    ) -> dict[TopicPartition, int]:
        broker = admin.read_positions()
        stored = home.read_progress().positions
        starts = decide_start(stored, broker)
        fresh = {tp: offset for tp, offset in starts.items() if tp not in stored}
        if fresh:
            home.register_positions(
                topic_ids(broker)[self._pipeline.source.topic], fresh
            )
        return starts

    def _run_query(
        self, prepared: _Prepared, started: tuple[Bridge, BridgeParts]
    ) -> None:
        bridge, parts = started
        stream = read_stream(
            prepared.spark, self._settings, self._pipeline, parts.starts
        )
        writer = stream.writeStream.foreachBatch(bridge).option(
            "checkpointLocation", parts.checkpoint.as_uri()
        )
        writer = (
            writer.trigger(availableNow=True)
            if self._once
            else writer.trigger(processingTime="0 seconds")
        )
        ids = topic_ids(parts.home.read_progress().positions)
        query = writer.start()
        self.metrics.note_started(parts.epoch, parts.starts)
        try:
            with TopicWatch(
                prepared.admin, ids, self._log, on_state=self._note_state
            ) as watch:
                self._await(query, bridge, watch)
        finally:
            query.stop()
            self.metrics.note_ended(failed=bridge.failure is not None)
        if bridge.failure is not None:
            raise bridge.failure

    def _await(self, query: StreamingQuery, bridge: Bridge, watch: TopicWatch) -> None:
        while query.isActive:
            if watch.failure is not None:
                raise watch.failure
            if self._stop.is_set():
                drained = bridge.drain(DRAIN_TIMEOUT_S)
                self._log.info("drained" if drained else "stopped in mid-batch")
                return
            bridge.tick()
            self._stop.wait(_POLL_S)
        failed = query.exception()
        if failed is not None:
            _raise_query_failure(bridge, failed)
        # All is read; what became due by it is part of it.
        while not self._stop.is_set() and bridge.tick(at_once=True):
            pass

    def _pause_after(self, error: RetryableError) -> None:
        """Wait before starting over; give up on what does not pass by itself.

        Servers that come back fail in other ways at first, so the time that they
        were away does not count against those.
        """
        self._pauses += 1
        if error.code not in _PATIENT or self._once:
            self._failures += 1
            if self._failures >= _FAILURES_MAX:
                raise error
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
        self._log.debug("batch planned", epoch=plan.key.epoch, ranges=_text(plan))

    def _note_state(self, state: TopicState) -> None:
        self.metrics.note_ends(state.ends)

    def _note_published(self, home: PostgresHome, report: BatchReport) -> None:
        self._pauses = self._failures = 0
        counts = report.result.tally.counts
        dead: dict[str, int] | None = {}
        if counts.dead:
            try:
                dead = home.count_dead_letters(report.plan.after_sequence + 1)
            except TallyweirError:
                # The batch is published; the next one will say what is wrong.
                dead = None
        self.metrics.note_published(report, dead)
        self._log.info(
            "batch published",
            epoch=report.plan.key.epoch,
            sequence=report.plan.after_sequence + 1,
            read=counts.read,
            committed=counts.committed,
            duplicate=counts.duplicate,
            dead=counts.dead,
            late=counts.late,
            expired=counts.expired,
            filtered=counts.filtered,
            seconds=round(report.seconds, 3),
        )

    def _fresh_directory(self, kind: str, claim: str) -> Path:
        """Make the directory of a claim, and drop those of the claims before it.

        Should an older driver still work in one of them, it notices, and it is
        fenced anyway.
        """
        parent = self._settings.state_directory / kind / self._pipeline.name
        if parent.is_dir():
            for former in parent.iterdir():
                shutil.rmtree(former, ignore_errors=True)
        directory = parent / claim
        directory.mkdir(parents=True)
        return directory


def _text(plan: BatchPlan) -> str:
    return ", ".join(str(planned) for planned in plan.ranges if planned.length)


def _raise_query_failure(bridge: Bridge, error: PySparkException) -> NoReturn:
    """Raise what really happened: Spark only passes on the words."""
    if bridge.failure is not None:
        raise bridge.failure
    raise RetryableError(
        "SPARK_QUERY_FAILED",
        saw=f"Spark ended the query: {what_failed(error)}",
        why="The batch at hand was dropped whole.",
        fix="Nothing to do if it passes; the log of Spark has the details.",
    ) from error
