"""A replay from its beginning to its receipt."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallyweir.schemas.pipeline import definition_hash
from tallyweir.sinks.kafka_admin import DRIVER_TIMEOUT_S, KafkaAdmin
from tallyweir.sinks.postgres.audit.replay.replay_committed import (
    Committed,
    RecordedBatch,
    one_moment,
)
from tallyweir.sinks.postgres.audit.replay.replay_parts import parts_of
from tallyweir.sinks.postgres.audit.replay.replay_receipt import (
    ComparedPart,
    Finding,
    FoundRow,
    ReplayReceipt,
)
from tallyweir.sinks.postgres.audit.replay.replay_rows import (
    ReplayBounds,
    ReplayRows,
    without,
)
from tallyweir.sinks.postgres.audit.replay.replay_scratch import ReplayScratch
from tallyweir.sinks.postgres.ledger.audited_pipeline import read_source
from tallyweir.sinks.postgres.outputs.output import ReplayPart
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.steering.resumed_replay import resume_from, snapshot_named
from tallyweir.sinks.postgres.steering.snapshot import Snapshot
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.sinks.settings import SCRATCH_DSN_VARIABLE, read_setting
from tallyweir.spark_jobs.batches.prepared_pipeline import (
    PipelineFiles,
    PreparedPipeline,
    prepare_pipeline,
)
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_session import (
    scratch_directory,
    start_spark_session,
)
from tallyweir.spark_jobs.frame.lookups import lookup_readers
from tallyweir.spark_jobs.replay.coverage import find_beginning, topics_read
from tallyweir.spark_jobs.replay.execution import Execution, ReplayProgress
from tallyweir.spark_jobs.replay.replayed_ids import FormerIds, opened_former_ids
from tallyweir.spark_jobs.replay.undetermined import Undetermined
from tallyweir.spark_jobs.tables.scratch_home import ScratchHome, read_result_tables
from tallyweir.spark_jobs.tables.shadowed_pipeline import shadowed

_NAME = "tallyweir replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Computes a pipeline again, and compares the result with what is committed.

    Attributes:
        settings: Settings of the driver.
        files: The pipeline, and the files that it names.
        since: The last batch that is not computed, or a snapshot; None for all batches.
        tell: Called with lines about the progress.
    """

    settings: DriverSettings
    files: PipelineFiles
    since: str | None
    tell: Callable[[str], None]

    def run(self) -> ReplayReceipt:
        """Do the replay; the pipeline may run meanwhile, and is not affected.

        Raises:
            ConfigurationError: ``REPLAY_OTHER_VERSION``, the role may not make scratch
                databases, or as a driver.
            RetryableError: ``REPLAY_UNSETTLED``, or a server does not answer.

        Crash:
            Scratch databases stay; the next use of the server for scratch databases
            drops them. A directory stays too, which the next replay deletes.
        """
        with ExitStack() as opened:
            name = self.files.pipeline.name
            with connect(self.settings.home_dsn, application_name=_NAME) as home:
                read_source(home, name)
            scratch = opened.enter_context(
                closing(
                    ScratchHome(
                        self._servers(),
                        self.files.pipeline,
                        read_result_tables(self.settings, self.files.pipeline),
                    )
                )
            )
            directory = scratch_directory(self.settings.state_directory / "replays")
            opened.callback(shutil.rmtree, directory, ignore_errors=True)
            prepared = self._prepare(scratch, directory)
            opened.enter_context(scratch.in_environment())
            return _Comparison(
                replay=self,
                prepared=prepared,
                scratch=opened.enter_context(ReplayScratch(scratch.dsns, name)),
                not_demanded=tuple(scratch.not_demanded),
            ).run()

    def _servers(self) -> dict[str, str]:
        """Return the server of each scratch database; by default the original's."""
        given = read_setting(os.environ, SCRATCH_DSN_VARIABLE)
        return {name: given or dsn for name, dsn in self.settings.dsns.items()}

    def _prepare(self, scratch: ScratchHome, directory: Path) -> PreparedPipeline:
        settings = scratch.settings(self.settings, directory)
        migrate(settings.home_dsn)
        pipeline = self.files.pipeline
        spark = start_spark_session(settings, name=pipeline.name)
        # Read lookups from their real sources.
        readers = lookup_readers(spark, self.settings, pipeline.enrich, self.files.path)
        prepared = prepare_pipeline(settings, self.files, readers)
        # This tells Spark's Python workers where to stage.
        spark.sparkContext.environment.update(scratch.variables)
        return prepared


@dataclass(slots=True, kw_only=True)
class _Comparison:
    """Both sides: the pipeline's home, and the scratch databases."""

    replay: Replay
    prepared: PreparedPipeline
    scratch: ReplayScratch
    not_demanded: tuple[str, ...]
    #: The last batch that is not computed, and the reason.
    after: int = 0
    why: str = ""
    #: The snapshot that the replay begins with.
    snapshot: Snapshot | None = None

    def run(self) -> ReplayReceipt:
        settings, name = self.replay.settings, self.prepared.name
        # The claim makes the tables.
        with closing(self.prepared.open_home()) as home:
            home.claim_epoch()
        with one_moment(settings.home_dsn, name, settings.databases) as committed:
            self._begin(committed)
            bounds = _bounds(committed, self.after, self.snapshot)
            parts = tuple(parts_of(self.prepared.layout))
            rows = ReplayRows(self.scratch.home, parts, bounds)
            rows.create()
            rows.copy_aside(committed.side)
            rows.copy_side(committed.side)
        self.scratch.take_key(committed)
        with self._former_ids() as former:
            execution = self._execute(rows, committed, former)
        self.replay.tell("comparing")
        rows.copy_side(self.scratch.side())
        return ReplayReceipt(
            pipeline=name,
            after_sequence=self.after,
            why_after=self.why,
            through_sequence=committed.audited.last_sequence,
            batches=execution.progress.batches,
            records=execution.progress.records,
            seconds=execution.progress.seconds,
            parts=self._compare(rows, execution, committed),
            notes=tuple(self._notes(execution, committed)),
        )

    def _execute(
        self,
        rows: ReplayRows,
        committed: Committed,
        former: FormerIds | None,
    ) -> Execution:
        batches = [b for b in committed.recorded.batches if b.sequence > self.after]
        execution = Execution(
            prepared=self.prepared,
            committed=committed,
            rows=rows,
            scratch=self.scratch,
            batches=batches,
            knows_state=self._knows_state,
            former=former,
            progress=ReplayProgress(
                len(batches), sum(b.records for b in batches), self.replay.tell
            ),
        )
        execution.run()
        return execution

    @contextmanager
    def _former_ids(self) -> Iterator[FormerIds | None]:
        """Open the IDs of the batches that are not replayed, if there are any."""
        layout = self.prepared.layout
        if not self.after or layout.horizon_us is None:
            yield None
            return
        with opened_former_ids(
            self.replay.settings.home_dsn,
            self.prepared.name,
            self.after,
            directory=self.prepared.settings.state_directory / "former_ids",
            false_positives=layout.false_positives,
        ) as former:
            yield former

    def _begin(self, committed: Committed) -> None:
        """Find the batch to begin after, and set the scratch home to it."""
        since = self.replay.since
        asked: Snapshot | None = None
        if since is not None and not since.isdecimal():
            asked = snapshot_named(committed, since)
        bootstrap = self.replay.settings.kafka_bootstrap
        broker = {
            place: position
            for topic in topics_read(committed.recorded)
            for place, position in _positions(bootstrap, topic).items()
        }
        written = shadowed(self.replay.files.pipeline, committed.side.own)
        self.after, self.why = find_beginning(
            committed.recorded,
            definition_hash(written),
            broker,
            since=asked.sequence if asked is not None else int(since or 0),
        )
        if asked is not None and asked.sequence == self.after:
            resume_from(asked, committed, self.scratch, self.prepared.layout)
            self.snapshot = asked

    @property
    def _knows_state(self) -> bool:
        return not self.after or self.snapshot is not None

    def _compare(
        self, rows: ReplayRows, execution: Execution, committed: Committed
    ) -> tuple[ComparedPart, ...]:
        recorded = committed.recorded
        undetermined = Undetermined(
            pipeline=self.replay.files.pipeline,
            layout=self.prepared.layout,
            added=self.prepared.added,
            changed_lookups=execution.lookups,
            erasures=recorded.erasures,
            erased_conditions=recorded.erased_conditions,
            has_forgotten=self._has_forgotten(execution, committed),
        )

        def not_compared(part: ReplayPart) -> str:
            if part.needs_all and not self._knows_state:
                return f"it may hold events of batches up to {self.after}"
            return ""

        parts = tuple(rows.compare(undetermined.explain, not_compared))
        for part in parts:
            if part.taken:
                part.note = f"{part.taken:,} messages are not there any more; the "
                part.note += f"relay has sent {committed.sent:,}"
            if part.taken > committed.sent:
                gone = part.taken - committed.sent
                part.add(
                    FoundRow(
                        key={"messages": str(gone)},
                        finding=Finding.MISSING,
                        committed=None,
                        replayed={"sent": str(committed.sent)},
                    )
                )
        return (*parts, *((execution.watermarks,) if self._knows_state else ()))

    def _has_forgotten(self, execution: Execution, committed: Committed) -> bool:
        """Return whether the catalog has forgotten IDs that the first batches knew."""
        gone_s = committed.audited.forgotten_before_s
        if self._knows_state or gone_s is None or not execution.batches:
            return False
        first = execution.batches[0].watermark_before_us
        known_us = self.prepared.layout.expired_before_us(first)
        return known_us is None or known_us < gone_s * 1_000_000

    def _notes(self, execution: Execution, committed: Committed) -> list[str]:
        notes = [
            "remembered IDs are not compared; tallyweir verify counts them",
        ]
        if execution.refused:
            notes.append(
                f"{execution.refused:,} rows that tables had refused were left out, as "
                "the ledger says"
            )
        if execution.roomless:
            notes.append(
                f"{execution.roomless:,} rows for whose IDs the catalog had no bucket "
                "left were left out, as the ledger says"
            )
        if committed.tombstones:
            notes.append(
                f"what was erased is not compared: {len(committed.tombstones):,} "
                "tombstones"
            )
        notes += [f"no scratch table has {one}" for one in self.not_demanded]
        return notes


def _bounds(
    committed: Committed, after: int, snapshot: Snapshot | None
) -> ReplayBounds:
    def ranges(batches: Iterable[RecordedBatch]) -> list[OffsetRange]:
        return [one for batch in batches for one in batch.ranges]

    batches = committed.recorded.batches
    before = [batch for batch in batches if batch.sequence <= after]
    return ReplayBounds(
        after_sequence=after,
        ranges=without(
            ranges([batch for batch in batches if batch.sequence > after]),
            ranges(before),
        ),
        has_erased=bool(committed.tombstones),
        watermark=None if snapshot is None else snapshot.watermark,
    )


def _positions(bootstrap: str, topic: str) -> Mapping[TopicPartition, BrokerPosition]:
    """Return the positions of a topic in Kafka; empty if it does not exist."""
    admin = KafkaAdmin(bootstrap, topic, timeout_s=DRIVER_TIMEOUT_S)
    try:
        return admin.read_positions()
    except ConfigurationError as error:
        if error.code != "TOPIC_MISSING":
            raise
        return {}
