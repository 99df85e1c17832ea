"""Phase one of the batch protocol, as one Spark task runs it on an executor.

A task gets a share of the batch's rows, decodes them (``StageTask.decode``), decides
the fate of each, copies the rows to staging and yields one line: its vote, or the error
that kept it from voting. Readers see no staged row before the driver publishes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.pipeline.events.monitoring import Reported
from tallyweir.sinks.postgres.ledger.stored_state import read_fingerprint_key
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.connection import PostgresConnection
from tallyweir.sinks.postgres.server.databases import parse_databases
from tallyweir.sinks.postgres.server.naming import HOME, TableNames
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter
from tallyweir.sinks.protocol.errors import FatalError, TallyweirError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.protocol.measures import Measures
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import RowsRejectedError
from tallyweir.sinks.protocol.vote_text import format_failure, format_vote
from tallyweir.sinks.protocol.votes import EventCounts, PartitionTally, Vote
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer
from tallyweir.sinks.seen_ids.claim_server import Address
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array
from tallyweir.sinks.seen_ids.run import ids_by_bucket
from tallyweir.sinks.settings import HOME_DSN_VARIABLE, read_setting
from tallyweir.sinks.step_clock import StepClock
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.event_ids import position_ids
from tallyweir.spark_jobs.task.record_columns import RecordColumns, join_ids
from tallyweir.spark_jobs.task.sampling import Sampling
from tallyweir.spark_jobs.task.staged_rows import StagedRows
from tallyweir.spark_jobs.task.task_measures import (
    MeasuredStaging,
    ages_of,
    figures_of,
    hide_keys,
)
from tallyweir.spark_jobs.task.task_worker import TaskWorker, this_process
from tallyweir.spark_jobs.task.verdicts import Case, KnownIds, Rules

#: What a task yields: one row with one line of text.
VOTE_SCHEMA = StructType([StructField("vote", StringType())])


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """All that a task must know; it travels to the executors with each batch.

    It holds no secret. The home database's address comes from the executor's own
    environment, and so does every other address that is not in the pipeline file. The
    key for fingerprints comes from the home database.
    """

    layout: PipelineLayout
    rules: Rules
    #: The topics and partitions behind the event frame's place numbers.
    places: SourcePlaces
    #: What the task reads of the records.
    reads: RecordColumns
    #: The columns that are an event's ID together; none if one is, or a position.
    id_parts: tuple[str, ...]
    #: Our own names of columns, each with the event's field that it stands for.
    aliases: Mapping[str, str]
    #: The databases other than the home, as the pipeline file declares them.
    declared_databases: Mapping[str, str]
    #: The driver's claim of its epoch.
    claim: EpochClaim
    #: The batch's sequence.
    sequence: int
    #: Where to ask for IDs; None if the pipeline checks no IDs.
    claims: Address | None
    #: The round of claims that this staging belongs to.
    claim_round: int
    #: Whether a user's transform has handled the rows.
    is_transformed: bool
    #: The columns that the pipeline's own figures are taken from.
    reported: Reported
    #: The conditions that filter events, as ``EventFrameRecipe`` numbers them.
    filter_conditions: tuple[str, ...]
    #: Outputs whose hot keys are reported as hashes only.
    hides_keys_of: frozenset[str]
    #: Which rows to keep as samples for people; None to keep none.
    sampling: Sampling | None
    #: When the batch was planned, by the home's clock; None in a batch run, because its
    #: events have not waited.
    planned_at_us: int | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the rows of one task of Spark and yield its vote."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this inside a task only"
        number = context.taskAttemptId()
        try:
            vote = format_vote(self.stage(batches, number, this_process()))
        except TallyweirError as error:
            vote = format_failure(error)
        yield pa.RecordBatch.from_pydict({"vote": [vote]})

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        number: int,
        worker: TaskWorker,
    ) -> Vote:
        """Stage the rows of one attempt, in any process.

        Args:
            batches: The rows, as ``EventFrameRecipe.for_tasks`` has chosen them.
            number: The number of this attempt among those of the claim.
            worker: What the process keeps between tasks.

        Raises:
            TallyweirError: The attempt casts no vote.

        Crash:
            The staged rows have no vote, so publishing never moves them.
        """
        attempt, clock = self.claim.attempt(number), StepClock()
        with clock.spent_on("read") as read:
            received = [batch for batch in batches if batch.num_rows]
            read.rows_out = sum(batch.num_rows for batch in received)
            read.bytes = sum(batch.nbytes for batch in received)
        if not received:
            return _empty_vote(attempt)
        arrived = np.concatenate(
            [np.asarray(batch.column(named.PLACE)) for batch in received]
        )
        table = pa.Table.from_batches(received).combine_chunks()
        # The table has copied the batches; the task must hold its rows only once.
        received.clear()
        if self.is_transformed:
            check_positions_differ(table)
        table, decoded = self._decode_measured(table, clock)
        rules, is_event = self.rules, decoded.is_event
        if wanted := rules.contracts.wanted_schemas(decoded.unknown_ids):
            return _empty_vote(attempt, wanted)
        while True:
            case = self._decide(table, is_event, rules, worker, clock)
            events, runs = case.events, case.new_ids()
            staged = StagedRows(
                events=events,
                layout=self.layout,
                places=self.places,
                watermark_us=rules.watermark_us,
                filter_conditions=self.filter_conditions,
                clock=clock,
            )
            open_writer = partial(self._open_writer, worker, attempt)
            staging = MeasuredStaging(open_writer, clock, self.layout, self.sampling)
            try:
                with clock.spent_on("make_rows"), staging:
                    outputs = staged.write(staging, runs)
            except RowsRejectedError as refusal:
                # Here, only a table that the task copies into directly refuses rows.
                rules = rules.rejecting(refusal.rows, self.places)
            else:
                break
        found = Measures(hot_keys=staging.hot_keys, unnamed=decoded.unnamed)
        return Vote(
            attempt=attempt,
            partitions=self._tally_partitions(events, arrived),
            staged=staging.rows,
            outputs=outputs,
            checksum=events.checksum(events.is_class(EventClass.COMMITTED)),
            buckets=ids_by_bucket(runs),
            measures=clock.measures() + self._seen(events, found, worker),
            samples=staging.samples_with(events, is_event, self.rules, self.places),
        )

    def _seen(
        self,
        events: ClassifiedEvents,
        found: Measures,
        worker: TaskWorker,
    ) -> Measures:
        """Add the events' ages and the pipeline's own figures; hide keys."""
        keys = found.hot_keys
        hidden = {name: hot for name, hot in keys.items() if name in self.hides_keys_of}
        if hidden:
            if worker.secret is None:
                worker.secret = self._read_key(worker)
            keys = {**keys, **hide_keys(hidden, worker.secret)}
        planned_at_us = self.planned_at_us
        ages = {} if planned_at_us is None else ages_of(events, planned_at_us)
        own = figures_of(events, self.reported)
        return replace(found, hot_keys=keys, ages=ages) + own

    def _decode_measured(
        self, table: pa.Table, clock: StepClock
    ) -> tuple[pa.Table, DecodedEvents]:
        with clock.spent_on("decode") as decode:
            table, decoded = self.decode(table)
            decode.rows_in = table.num_rows
            decode.rows_out = int(np.count_nonzero(decoded.is_event))
        return table, decoded

    def decode(self, table: pa.Table) -> tuple[pa.Table, DecodedEvents]:
        """Add the events' fields; tell what else the decoder found."""
        table, decoded = self.reads.add_to(table, self.rules.contracts)
        for alias, field in self.aliases.items():
            table = table.append_column(alias, table.column(field))
        if self.id_parts:
            ids = join_ids([table.column(one).chunk(0) for one in self.id_parts])
            table = table.append_column(named.EVENT_ID, ids)
        elif named.EVENT_ID not in table.column_names:
            ids = position_ids(table, self.places)
            table = table.append_column(named.EVENT_ID, ids)
        return table, decoded

    def _decide(
        self,
        table: pa.Table,
        is_event: BoolArray,
        rules: Rules,
        worker: TaskWorker,
        clock: StepClock,
    ) -> Case:
        """Decide the fate of each event, step by step."""
        with clock.spent_on("validate") as validate:
            case = self.case(table, is_event, rules, worker)
            case.decide("validate")
            left = case.events.count(EventClass.COMMITTED)
            validate.rows_in += table.num_rows
            validate.rows_out += left
        if rules.ids is not None:
            with clock.spent_on("deduplicate") as deduplicate:
                case.decide("deduplicate")
                deduplicate.rows_in += left
                deduplicate.rows_out += case.events.count(EventClass.COMMITTED)
        with clock.spent_on("windows"):
            case.decide("windows")
        return case

    def case(
        self, table: pa.Table, is_event: BoolArray, rules: Rules, worker: TaskWorker
    ) -> Case:
        """Return events with all that decides their fate; nothing is decided yet.

        Args:
            table: The table that ``decode`` has returned.
            is_event: The events that ``decode`` has found in it.
            rules: The task's rules, or the same with more rejections.
            worker: What the process keeps between tasks.
        """
        home = self._connect(worker, HOME)
        known = KnownIds(
            tombstones=worker.tombstones(home, self.layout.pipeline, self.claim),
            places=self.places,
            read_key=partial(self._read_key, worker),
            ask=partial(self._ask, worker),
        )
        events = ClassifiedEvents.undecided(table)
        return Case(events=events, is_event=is_event, rules=rules, known=known)

    def _read_key(self, worker: TaskWorker) -> bytes:
        return read_fingerprint_key(self._connect(worker, HOME))

    def _ask(self, worker: TaskWorker, key: bytes, asked: Candidates) -> ClaimAnswer:
        assert self.claims is not None
        return worker.whom_to_ask(self.claims, key).ask(self.claim_round, asked)

    def _open_writer(
        self, worker: TaskWorker, attempt: Attempt, database: str
    ) -> StagingWriter:
        return StagingWriter(
            self._connect(worker, database),
            TableNames(
                pipeline_number=self.claim.pipeline_number,
                epoch=self.claim.epoch,
                sequence=self.sequence,
                installation=None if database == HOME else self.claim.installation,
            ),
            attempt=attempt,
        )

    def _connect(self, worker: TaskWorker, database: str) -> PostgresConnection:
        """Return the connection to a database that the worker keeps."""
        kept = worker.connections[database]
        dsn = self._dsn(database)
        return kept.get(
            dsn, pipeline_number=self.claim.pipeline_number, epoch=self.claim.epoch
        )

    def _dsn(self, database: str) -> str:
        if database == HOME:
            return read_setting(os.environ, HOME_DSN_VARIABLE) or ""
        return parse_databases(os.environ, self.declared_databases)[database]

    def _tally_partitions(
        self, events: ClassifiedEvents, arrived: I64Array
    ) -> Mapping[TopicPartition, PartitionTally]:
        """Count the events of each partition that arrived, and those of each class.

        The arrived events are counted in the batches that Spark handed over, the
        classes in the rows after the verdicts. The conservation law compares the two.
        """
        places = np.asarray(events.array(named.PLACE))
        offsets = np.asarray(events.array(named.OFFSET))
        # An erased event might otherwise be dead, so it must not move the clocks.
        valid = ~(events.is_class(EventClass.DEAD) | events.is_erased())
        # A skipped record may have no time.
        valid &= np.asarray(events.array(named.EVENT_TIME).is_valid())
        tallies: dict[TopicPartition, PartitionTally] = {}
        # With counts, numpy sorts. For a few long stretches, that beats hashing.
        numbers, read = np.unique(arrived, return_counts=True)
        for number, count in zip(numbers.tolist(), read.tolist(), strict=True):
            mine = places == number
            by_class = np.bincount(events.classes[mine], minlength=len(EventClass))
            times = events.event_time_us[mine & valid]
            tallies[self.places.place(number)] = PartitionTally(
                counts=EventCounts(
                    read=count,
                    **{one.name.lower(): int(by_class[one]) for one in EventClass},
                ),
                offset_min=int(offsets[mine].min()),
                offset_max=int(offsets[mine].max()),
                event_time_max_us=int(times.max()) if times.size else None,
            )
        return tallies


def _empty_vote(attempt: Attempt, wanted: frozenset[int] = frozenset()) -> Vote:
    return Vote(
        attempt=attempt, partitions={}, staged={}, outputs={}, wanted_schemas=wanted
    )


def check_positions_differ(table: pa.Table) -> None:
    """Refuse a task's rows if they hold an event twice.

    If a transform doubles one event and loses another, the counts that the conservation
    law compares stay the same.

    Raises:
        FatalError: ``EVENT_DOUBLED``.
    """
    positions = np.rec.fromarrays(
        [np.asarray(table.column(name)) for name in (named.PLACE, named.OFFSET)]
    )
    doubled = len(positions) - len(np.unique(positions))
    if doubled:
        raise FatalError(
            "EVENT_DOUBLED",
            saw=f"{doubled} of {len(positions)} events reached a task twice.",
            why="Each event must count once; nothing of this batch was published.",
            fix="Make the pipeline's transform return exactly one row for each row "
            "that it receives.",
        )
