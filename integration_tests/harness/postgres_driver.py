"""A driver on a real home database, without Spark and Kafka: plan, stage, publish."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from tallyweir.sinks.postgres.branches.participant import PostgresParticipant
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import (
    HOME,
    TableNames,
    database_of,
    staged_for,
    staging_table,
)
from tallyweir.sinks.postgres.staging.staging_tables import staging_tables
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.votes import (
    BatchTally,
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
    tally_votes,
)
from tallyweir.sinks.testing.planned_batches import plan_batch

PIPELINE = "numbers"
TP = TopicPartition("numbers", 0)
SECOND_US = 1_000_000

Row = tuple[Any, ...]


def layout_of(
    *outputs: Output,
    watermark_delay_us: int = 0,
    idle_timeout_us: int = 3600 * SECOND_US,
) -> PipelineLayout:
    """Describe a pipeline with these outputs; everything else is plain."""
    return PipelineLayout(
        pipeline=PIPELINE,
        definition=json.dumps(
            {"outputs": [{"table": output.table} for output in outputs]}
        ),
        definition_hash="hash",
        outputs=outputs,
        shards=2,
        bucket_seconds=3600,
        watermark_delay_us=watermark_delay_us,
        idle_timeout_us=idle_timeout_us,
        horizon_us=None,
    )


def append_table(table: str, **columns: str) -> AppendTable:
    """Describe an append output; columns by name with their Postgres types."""
    return AppendTable(
        table=table,
        staging_table="output_0",
        event_columns=tuple(
            Column(name=name, postgres_type=kind) for name, kind in columns.items()
        ),
    )


def counted_windows(table: str, *by: str, seconds: int = 60) -> WindowTable:
    """Describe a window output that counts the events of each group.

    Args:
        table: Its table.
        by: The columns of its groups, all of them texts.
        seconds: How long each window is.
    """
    return WindowTable(
        table=table,
        staging_table="output_1",
        windows=fixed_windows(seconds * SECOND_US),
        by=tuple(Column(name=name, postgres_type="text") for name in by),
        aggregates=(
            WindowAggregate(
                column=Column(name="events", postgres_type="bigint"),
                function=AggregateFunction.COUNT,
                number=0,
                partial_type="bigint",
            ),
        ),
        allowed_lateness_us=0,
        late=LatePolicy.DROP,
    )


def arrow_rows(columns: Sequence[Column], rows: Sequence[Row]) -> pa.Table:
    """Build the Arrow table that a task would stage."""
    types = {
        "bigint": pa.int64(),
        "integer": pa.int32(),
        "smallint": pa.int16(),
        "boolean": pa.bool_(),
        "text": pa.string(),
        "jsonb": pa.string(),
        "bytea": pa.binary(),
        "double precision": pa.float64(),
        "numeric": pa.decimal128(38, 6),
        "timestamp with time zone": pa.timestamp("us", "UTC"),
    }
    return pa.table(
        [
            pa.array([row[i] for row in rows], type=types[column.postgres_type])
            for i, column in enumerate(columns)
        ],
        names=[column.name for column in columns],
    )


@dataclass(kw_only=True)
class PostgresDriver:
    """Claims an epoch when made; then publishes batches as it is told."""

    dsn: str
    layout: PipelineLayout
    #: Where the home connects, when a proxy stands before the server.
    home_dsn: str | None = None
    #: Where the other databases of the layout's branches are, by name.
    databases: Mapping[str, str] = field(default_factory=dict)
    home: PostgresHome = field(init=False)
    epoch: Any = field(init=False)
    participants: dict[str, PostgresParticipant] = field(init=False)
    publisher: Publisher = field(init=False)
    batches: int = 0
    attempts: int = 0
    #: The batch that rows are staged for: the one planned last.
    sequence: int = 1

    def __post_init__(self) -> None:
        self.home = PostgresHome(self.home_dsn or self.dsn, self.layout)
        # A test that forgets a driver, as crashes do, leaves no connection behind.
        weakref.finalize(self, self.home.close)
        self.epoch = self.home.claim_epoch()
        self.participants = {
            database: PostgresParticipant(
                self.dsn if database == HOME else self.databases[database],
                database,
                self.home.layout,
                self.home.claim,
            )
            for database in self.layout.databases
        }
        for participant in self.participants.values():
            weakref.finalize(self, participant.close)
        self.publisher = Publisher(self.home, list(self.participants.values()))
        self.publisher.start()
        self.home.drop_superseded_staging()

    def plan(self, length: int) -> BatchPlan:
        """Plan the next batch of the one partition."""
        self.batches += 1
        plan = plan_batch(
            self.home.read_progress(),
            {TP: length},
            epoch=self.epoch,
            spark_batch_id=self.batches,
        )
        self.sequence = plan.sequence
        return plan

    def staging_table(self, table: str) -> sql.Identifier:
        """Name one of the home's staging tables of the batch planned last."""
        number = self.home.claim.pipeline_number
        return staging_table(number, self.epoch, table, sequence=self.sequence)

    def stage_rows(
        self, table: str, rows: Sequence[Row], *, attempt: int
    ) -> Mapping[str, int]:
        """Copy rows into a staging table as one attempt, without a vote.

        A branch's table, as ``staged_for`` names it, is in the branch's database. Rows
        of an output that tasks copy go to its table, and their receipt to staging.
        Returns the rows that are staged, by table.
        """
        database = database_of(table.partition("@")[2])
        branch = table.partition("@")[2] or HOME
        columns = staging_tables(self.layout, branch)[table]
        copied = {
            output.staging_table: output
            for output in self.layout.outputs
            if isinstance(output, AppendTable) and output.copied_by_tasks
        }.get(table)
        with (
            connect(
                self.dsn if database == HOME else self.databases[database],
                application_name="test task",
            ) as connection,
            StagingWriter(
                connection,
                TableNames(
                    pipeline_number=self.home.claim.pipeline_number,
                    epoch=self.epoch,
                    sequence=self.sequence,
                    installation=None
                    if database == HOME
                    else self.home.claim.installation,
                ),
                attempt=Attempt(attempt),
            ) as writer,
        ):
            if copied is not None:
                writer.copy_results(copied, arrow_rows(copied.columns, rows))
            else:
                writer.copy(table, columns, arrow_rows(columns, rows))
        return writer.rows

    def stage(
        self,
        plan: BatchPlan,
        staged: Mapping[str, Sequence[Row]],
        *,
        event_time_max_us: int | None = None,
        revised: int = 0,
        buckets: Iterable[int] = (),
    ) -> BatchTally:
        """Stage rows by table as one attempt, and vote for the whole plan."""
        self.attempts += 1
        self.sequence = plan.sequence
        voted: dict[str, int] = {}
        for table, rows in staged.items():
            voted |= self.stage_rows(table, rows, attempt=self.attempts)
        (covered,) = plan.ranges
        outputs = {
            output.table: OutputTally(
                events=covered.length,
                rows=sum(
                    len(staged.get(staged_for(output.staging_table, branch), ()))
                    for branch in output.branches
                ),
                revised=revised,
            )
            for output in self.layout.outputs
        }
        counts = EventCounts(read=covered.length, committed=covered.length)
        seen = PartitionTally(
            counts=counts,
            offset_min=covered.from_offset,
            offset_max=covered.until_offset - 1,
            event_time_max_us=event_time_max_us,
        )
        vote = Vote(
            attempt=Attempt(self.attempts),
            partitions={TP: seen} if covered.length else {},
            staged={table: voted.get(table, 0) for table in staged},
            outputs=outputs,
            checksum=sum(range(covered.from_offset, covered.until_offset)),
            buckets=Counter(buckets),
        )
        return tally_votes([vote], plan.ranges, records_read=covered.length)

    def publish(self, plan: BatchPlan, tally: BatchTally) -> PublishOutcome:
        """Publish a staged batch."""
        return self.publisher.publish(plan, tally, restagings=0)

    def positioned(self, plan: BatchPlan, values: Sequence[Row]) -> list[Row]:
        """Give each row the next position of the plan."""
        (covered,) = plan.ranges
        return [
            (*row, TP.topic, TP.partition, covered.from_offset + i)
            for i, row in enumerate(values)
        ]

    def append(self, values: Sequence[Row]) -> PublishOutcome:
        """Publish one batch of rows to the one append output."""
        plan = self.plan(len(values))
        tally = self.stage(plan, {"output_0": self.positioned(plan, values)})
        return self.publish(plan, tally)


def query(dsn: str, statement: str, *values: object) -> list[Row]:
    """Read what a reader of the database sees."""
    with connect(dsn, application_name="test reader") as connection:
        return connection.execute(statement.encode(), values or None).fetchall()


def execute(dsn: str, *statements: str) -> None:
    """Change the database as its owner may."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
