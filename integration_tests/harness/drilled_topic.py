"""A topic kept in memory, and a driver that reads it into a real home database.

The tasks are played without Spark, but what they need from the database they read
from there: which IDs are repeats follows from the catalog, which a restore takes back.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    SECOND_US,
    TP,
    PostgresDriver,
    Row,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import OffsetRange
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import (
    BatchTally,
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
    tally_votes,
)

_START = datetime(2026, 3, 1, tzinfo=UTC)
_WINDOW_S = 60
#: Records of a batch at most, unless a test says otherwise.
BATCH_MAX = 40
_FINGERPRINT_BYTES = 16

_EVENTS = append_table(
    "events",
    event_id="text",
    at="timestamp with time zone",
    site="text",
    amount="bigint",
)
_BY_SITE = WindowTable(
    table="by_site",
    staging_table="output_1",
    windows=fixed_windows(_WINDOW_S * SECOND_US),
    by=(Column(name="site", postgres_type="text"),),
    aggregates=(
        WindowAggregate(
            column=Column(name="events", postgres_type="bigint"),
            function=AggregateFunction.COUNT,
            number=0,
            partial_type="bigint",
        ),
        WindowAggregate(
            column=Column(name="total", postgres_type="bigint"),
            function=AggregateFunction.SUM,
            number=1,
            partial_type="bigint",
        ),
    ),
    allowed_lateness_us=0,
    late=LatePolicy.SIDE_TABLE,
)


def drilled_layout() -> PipelineLayout:
    """Describe the drills' pipeline: events, and windows of a minute by site."""
    definition = {
        "format": 1,
        "name": PIPELINE,
        "source": {
            "topic": TP.topic,
            "schema": "drill.v1",
            "event_id": {"field": "event_id"},
            "event_time": "at",
        },
        "deduplicate": {"horizon": "7 days"},
        "outputs": [
            {"kind": "append", "table": "events", "columns": None},
            {"kind": "window", "table": "by_site", "late": "side_table"},
        ],
    }
    return replace(
        layout_of(_EVENTS, _BY_SITE, watermark_delay_us=30 * SECOND_US),
        definition=json.dumps(definition),
        horizon_us=7 * 86_400 * SECOND_US,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillEvent:
    """One record; its fate does not depend on how the topic is cut into batches."""

    event_id: str
    at: datetime
    site: str
    amount: int
    is_dead: bool


def drilled_topic(chance: random.Random, records: int) -> list[DrillEvent]:
    """Make a topic in which a tenth of the records are repeats and a twentieth dead."""
    topic: list[DrillEvent] = []
    for offset in range(records):
        event = DrillEvent(
            event_id=f"e{offset}",
            at=_START + timedelta(seconds=offset),
            site=chance.choice("ABC"),
            amount=chance.randrange(1_000),
            is_dead=chance.random() < 0.05,
        )
        if topic and chance.random() < 0.1:
            event = chance.choice(topic)
        topic.append(event)
    return topic


class DrilledDriver:
    """A driver of the drills' pipeline; claims an epoch when it is made.

    Args:
        dsn: The migrated home database.
        topic: What it reads.
        chance: Decides how many records a batch holds.
        batch_max: How many it may hold.
    """

    def __init__(
        self,
        dsn: str,
        topic: list[DrillEvent],
        chance: random.Random,
        *,
        batch_max: int = BATCH_MAX,
    ) -> None:
        self._driver = PostgresDriver(dsn=dsn, layout=drilled_layout())
        self._topic = topic
        self._chance = chance
        self._batch_max = batch_max

    @property
    def position(self) -> int:
        """The next offset, as the database has it."""
        known = self._driver.home.read_progress().positions.get(TP)
        return known.next_offset if known else 0

    def run_batch(self) -> PublishOutcome:
        """Take one batch to its end."""
        return self.publish(*self.stage_batch())

    def run_batches(self, batches: int) -> None:
        """Take some batches to their end."""
        for _ in range(batches):
            assert PublishOutcome.COMMITTED is self.run_batch()

    def run_to_the_end(self) -> None:
        """Read the topic to its end."""
        while self.position < len(self._topic):
            self.run_batch()

    def stage_batch(self) -> tuple[BatchPlan, BatchTally]:
        """Plan and stage the next batch, and vote for it."""
        left = len(self._topic) - self.position
        plan = self._driver.plan(min(left, self._chance.randint(1, self._batch_max)))
        return plan, self._stage(plan)

    def publish(self, plan: BatchPlan, tally: BatchTally) -> PublishOutcome:
        """Publish a batch that was staged, maybe in another life of the database."""
        return self._driver.publish(plan, tally)

    def close(self) -> None:
        """Close the connection."""
        self._driver.home.close()

    def _stage(self, plan: BatchPlan) -> BatchTally:
        (covered,) = plan.ranges
        staged = self._sort_out(covered)
        self._driver.attempts += 1
        for table, rows in staged.items():
            self._driver.stage_rows(table, rows, attempt=self._driver.attempts)
        committed = staged["output_0"]
        counts = EventCounts(
            read=covered.length,
            committed=len(committed),
            duplicate=len(staged["duplicate_event"]),
            dead=len(staged["dead_letter"]),
        )
        seen = PartitionTally(
            counts=counts,
            offset_min=covered.from_offset,
            offset_max=covered.until_offset - 1,
            event_time_max_us=max(
                (int(row[1].timestamp()) * SECOND_US for row in committed),
                default=None,
            ),
        )
        output = OutputTally(events=len(committed), rows=len(committed))
        vote = Vote(
            attempt=Attempt(self._driver.attempts),
            partitions={TP: seen},
            staged={table: len(rows) for table, rows in staged.items()},
            outputs={"events": output, "by_site": output},
            checksum=sum(row[-1] for row in committed),
            buckets=dict.fromkeys((row[0] for row in staged["seen_id_run"]), 1),
        )
        return tally_votes([vote], plan.ranges, records_read=covered.length)

    def _sort_out(self, covered: OffsetRange) -> Mapping[str, list[Row]]:
        """Decide what becomes of each record, as tasks do, and make its rows."""
        seen = remembered_ids(self._driver.dsn)
        staged: dict[str, list[Row]] = defaultdict(list)
        runs: dict[int, list[bytes]] = defaultdict(list)
        for offset in range(covered.from_offset, covered.until_offset):
            event = self._topic[offset]
            place = (TP.topic, TP.partition, offset)
            if event.is_dead:
                letter = (None, "UNDECODABLE", "drill", event.event_id, None, b"?")
                staged["dead_letter"].append((*place, *letter))
            elif _fingerprint(event) in seen:
                staged["duplicate_event"].append((*place, event.event_id))
            else:
                seen.add(_fingerprint(event))
                runs[_bucket(event)].append(_fingerprint(event))
                _stage_results(staged, event, place)
        for bucket, found in runs.items():
            prints = sorted(found)
            run = (len(prints), prints[0], prints[-1], b"".join(prints), None)
            staged["seen_id_run"].append((bucket, *run))
        return staged


def remembered_ids(dsn: str) -> set[bytes]:
    """Read every fingerprint of the catalog."""
    return {
        run[start : start + _FINGERPRINT_BYTES]
        for (run,) in query(dsn, "SELECT fingerprints FROM tallyweir.seen_id_run")
        for start in range(0, len(run), _FINGERPRINT_BYTES)
    }


def run_undisturbed(
    server_dsn: str, topic: list[DrillEvent], chance: random.Random
) -> dict[str, Any]:
    """Read the topic in a database of its own, in large batches; return the tables."""
    execute(server_dsn, "CREATE DATABASE undisturbed")
    dsn = make_conninfo(server_dsn, dbname="undisturbed")
    migrate(dsn)
    driver = DrilledDriver(dsn, topic, chance, batch_max=len(topic) // 2)
    driver.run_to_the_end()
    driver.close()
    tables = final_tables(dsn)
    assert all(tables.values()), "a drill compares nothing that stays empty"
    return tables


#: Everything that must not depend on what happened on the way.
_FINAL_TABLES = {
    "events": "SELECT * FROM events ORDER BY kafka_offset",
    "windows": "SELECT * FROM by_site ORDER BY window_start, site",
    "dead letters": "SELECT kafka_offset, reason, event_id, payload "
    "FROM tallyweir.dead_letter ORDER BY 1",
    "duplicates": "SELECT kafka_offset, event_id "
    "FROM tallyweir.duplicate_event ORDER BY 1",
    "positions": "SELECT topic, partition, next_offset, event_time_max "
    "FROM tallyweir.partition_progress ORDER BY 1, 2",
    "watermark": "SELECT watermark FROM tallyweir.pipeline",
    "counts": "SELECT sum(read), sum(committed), sum(duplicate), sum(dead) "
    "FROM tallyweir.batch_partition",
}


def final_tables(dsn: str) -> dict[str, Any]:
    """Read the tables that a run leaves, after the product's own audit."""
    with psycopg.connect(dsn) as connection:
        receipt = verify(connection, PIPELINE)
    assert not receipt.failed, receipt.failed
    found: dict[str, Any] = {
        name: query(dsn, statement) for name, statement in _FINAL_TABLES.items()
    }
    return found | {"seen IDs": remembered_ids(dsn)}


def _stage_results(
    staged: dict[str, list[Row]], event: DrillEvent, place: tuple[str, int, int]
) -> None:
    values = (event.event_id, event.at, event.site, event.amount)
    staged["output_0"].append((*values, *place))
    start = event.at - (event.at - _START) % timedelta(seconds=_WINDOW_S)
    end = start + timedelta(seconds=_WINDOW_S)
    staged["output_1"].append((start, end, event.site, 1, 1, event.amount, 1))


def _fingerprint(event: DrillEvent) -> bytes:
    return hashlib.md5(event.event_id.encode(), usedforsecurity=False).digest()


def _bucket(event: DrillEvent) -> int:
    return int(event.at.timestamp()) // 3600 * 3600
