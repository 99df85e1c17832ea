"""A pipeline with keyed state and an outbox, without Spark, to take snapshots of.

Its events are numbers. A function keeps for even and odd ones how much they are
together and which there were, and sets a timer; every number is a message, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import psycopg

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    TP,
    PostgresDriver,
    Row,
    append_table,
    layout_of,
    query,
)
from integration_tests.harness.sharded_numbers import with_definition
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.outputs.key_text import format_key, shard_of
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.outbox_table import OutboxTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.steering import Restored, restore, take_snapshot
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.sinks.protocol.votes import (
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
    tally_votes,
)
from tallyweir.sinks.testing.planned_batches import TOPIC_ID

START = datetime(2026, 3, 1, tzinfo=UTC)
STATE = (
    "SELECT key, name, entry, value::text, sequence FROM tallyweir.keyed_state "
    "ORDER BY 1, 2, 3"
)
TIMERS = (
    "SELECT key, name, shard, clock, fires_at, sequence FROM tallyweir.keyed_timer "
    "ORDER BY 1, 2"
)
#: Without what tells how the numbers fell into batches.
RESULTS = "SELECT kind, what, total FROM totals ORDER BY kind, total, what"


def keyed_layout(topic: str) -> PipelineLayout:
    """Lay out the pipeline; its messages go to a topic."""
    number = Column(name="number", postgres_type="bigint")
    outputs = (
        append_table("numbers", number="bigint"),
        KeyedTable(
            table="totals",
            staging_table="output_1",
            event_columns=(number,),
            key=(Column(name="kind", postgres_type="text"),),
            columns=(
                Column(name="what", postgres_type="text"),
                Column(name="total", postgres_type="bigint"),
            ),
        ),
        OutboxTable(
            table=f"outbox:{topic}",
            staging_table="output_2",
            topic=topic,
            fields=(number,),
            key=number,
        ),
    )
    return with_definition(
        layout_of(*outputs),
        [{"kind": one.kind.name, "table": one.table} for one in outputs],
    )


class KeyedPipeline:
    """The pipeline, its driver, and what there is of it.

    Args:
        dsn: Its home.
        topic: Where its messages go.
    """

    def __init__(self, dsn: str, topic: str) -> None:
        self.dsn = dsn
        self._layout = keyed_layout(topic)
        self._driver = PostgresDriver(dsn=dsn, layout=self._layout)

    def publish(self, *numbers: int, fires: Sequence[str] = ()) -> None:
        """Publish a batch of numbers, after which the timers of some kinds fire."""
        driver = self._driver
        plan = driver.plan(len(numbers))
        (covered,) = plan.ranges
        driver.attempts += 1
        staged = {
            "output_0": driver.positioned(plan, [(number,) for number in numbers]),
            "output_2": driver.positioned(plan, [(n, n, f"id-{n}") for n in numbers]),
            **self._keyed_rows(numbers, fires),
        }
        for table, rows in staged.items():
            driver.stage_rows(table, rows, attempt=driver.attempts)
        newest = max(map(_instant_of, numbers))
        outputs = zip(
            self._layout.outputs, ("output_0", "output_1_rows", "output_2"), strict=True
        )
        vote = Vote(
            attempt=Attempt(driver.attempts),
            partitions={
                TP: PartitionTally(
                    counts=EventCounts(read=len(numbers), committed=len(numbers)),
                    offset_min=covered.from_offset,
                    offset_max=covered.until_offset - 1,
                    event_time_max_us=int(newest.timestamp()) * 1_000_000,
                )
            },
            staged={table: len(rows) for table, rows in staged.items()},
            outputs={
                output.table: OutputTally(events=len(numbers), rows=len(staged[table]))
                for output, table in outputs
            },
            checksum=sum(range(covered.from_offset, covered.until_offset)),
        )
        tally = tally_votes([vote], plan.ranges, records_read=len(numbers))
        driver.publish(plan, tally)

    def _keyed_rows(
        self, numbers: Sequence[int], fires: Sequence[str]
    ) -> dict[str, list[Row]]:
        """Do what the function does, after the state that the home has."""
        totals = {
            json.loads(key)[0]: int(value)
            for key, name, _, value, _ in query(self.dsn, STATE)
            if name == "total"
        }
        results: list[Row] = []
        state: dict[tuple[str, str, str], Row] = {}
        timers: dict[str, Row] = {}
        for number in numbers:
            kind = _kind_of(number)
            totals[kind] = totals.get(kind, 0) + number
            results.append((kind, "number", totals[kind], len(results)))
            state[kind, "total", ""] = ("put", str(totals[kind]), 1, None)
            state[kind, "seen", str(number)] = ("put", "true", 1, None)
            at = _instant_of(number) + timedelta(hours=1)
            timers[kind] = ("event", at)
        for kind in fires:
            results.append((kind, "silent", totals[kind], len(results)))
            state[kind, "seen", ""] = ("clear", None, None, None)
            timers[kind] = ("event", None)
        return {
            "output_1_rows": results,
            "keyed_state": [
                ("totals", format_key([kind]), name, entry, *change)
                for (kind, name, entry), change in state.items()
            ],
            "keyed_timer": [
                (
                    *("totals", format_key([kind]), "silent"),
                    shard_of(format_key([kind]), self._layout.shards),
                    *timer,
                )
                for kind, timer in timers.items()
            ],
        }

    def take(self, name: str) -> None:
        """Take a snapshot."""
        with psycopg.connect(self.dsn) as home:
            take_snapshot(home, PIPELINE, name, reason="a test")

    def restore(
        self, name: str, *, home: psycopg.Connection[Row] | None = None
    ) -> Restored:
        """Go back to a snapshot, and let the next driver start."""
        broker = {
            TP: BrokerPosition(
                topic_id=TOPIC_ID, log_start_offset=0, log_end_offset=1000
            )
        }
        with home or psycopg.connect(self.dsn) as connection:
            done = restore(connection, PIPELINE, name, broker, reason="a test")
        self._driver.home.close()
        self._driver = PostgresDriver(dsn=self.dsn, layout=self._layout)
        return done

    def waiting(self) -> list[int]:
        """The numbers of messages that the relay has not sent, in order."""
        return [
            json.loads(value)["number"]
            for (value,) in query(
                self.dsn,
                "SELECT convert_from(value, 'UTF8') FROM tallyweir.outbox "
                "ORDER BY sequence, kafka_offset",
            )
        ]

    def counted(self) -> list[int]:
        """How many messages the relay's cursor counts; nothing without a cursor."""
        cursor = "SELECT messages FROM tallyweir.relay_cursor WHERE stream = 'outbox'"
        return [messages for (messages,) in query(self.dsn, cursor)]

    def assert_verified(self) -> None:
        """Assert that the product's own audit finds nothing."""
        with psycopg.connect(self.dsn) as home:
            receipt = verify(home, PIPELINE)
        assert not receipt.failed, receipt.failed


def _kind_of(number: int) -> str:
    return "odd" if number % 2 else "even"


def _instant_of(number: int) -> datetime:
    return START + timedelta(minutes=number)
