"""Several topics as one stream: each record once by topic, partition and offset."""

from __future__ import annotations

import datetime as dt
import json
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.driver_world import SOURCE, DriverWorld, numbered
from integration_tests.harness.kept_copies import with_kept_copies
from integration_tests.harness.readings import (
    NOON,
    READING,
    Sent,
    reading,
    sent,
    write_contract,
)
from integration_tests.harness.relayed_home import read_committed, relay_round
from integration_tests.harness.watched_driver import WatchedDriver
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.schemas.codec import encode
from tallyweir.services.relay.offset_mirror import advisory_group
from tallyweir.sinks.postgres.server.naming import HOME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: A record's topic, partition and offset.
Place = tuple[str, int, int]

_CONFIGURATION = 78
_FATES = """
    SELECT kafka_topic, kafka_partition, kafka_offset, {fate}
    FROM {table}
"""
_OUTPUTS = """
    outputs:
      - append: {{table: readings}}
      - window:
          table: readings_by_hour
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
"""

_OWN_TABLE = """
    CREATE TABLE readings (
        sensor text CHECK (sensor <> 'forbidden'), event_id text, at timestamptz,
        amount integer, site text, grade text, divisor integer,
        kafka_topic text, kafka_partition integer, kafka_offset bigint
    )
"""


class _World(DriverWorld):
    """A pipeline that reads two topics, of which the second has another name only."""

    def __init__(self, directory: Path, kafka_bootstrap: str, home_dsn: str) -> None:
        super().__init__(directory, kafka_bootstrap, home_dsn)
        self.us = WrittenTopic(kafka_bootstrap, f"{self.topic.name}-us")
        self.us.create(2)
        self.read("[{topic}-us, {topic}]")

    @property
    def eu(self) -> WrittenTopic:
        return self.topic

    def read(self, topics: str) -> None:
        """Write the pipeline's file with these topics."""
        self.write_pipeline(SOURCE.replace("{topic}", topics) + _OUTPUTS)

    def send(self, topic: WrittenTopic, records: Sequence[Sent]) -> dict[Place, Sent]:
        """Send records; return them by where they are."""
        placed = topic.send(records)
        return {(topic.name, *place): record for place, record in placed.items()}

    def assert_placed(self, records: Mapping[Place, Sent]) -> None:
        """Assert that each record has met its fate once, and the ledger agrees."""
        side = {
            "public.readings": "'committed'",
            "tallyweir.dead_letter": "reason",
            "tallyweir.duplicate_event": "'duplicate'",
        }
        rows = [
            row
            for table, fate in side.items()
            for row in self.fetch(_FATES.format(table=table, fate=fate))
        ]
        assert len(rows) == len({row[:3] for row in rows}), "two fates of one record"
        found = {row[:3]: row[3] for row in rows}
        records = with_kept_copies(records, found, self.fetch)
        assert {place: one.fate for place, one in records.items()} == found
        counts = Counter(place[:2] for place in records)
        assert counts == {
            (topic, partition): read
            for topic, partition, read in self.fetch(
                "SELECT topic, partition, sum(read)::int FROM "
                "tallyweir.batch_partition GROUP BY 1, 2 HAVING sum(read) > 0"
            )
        }
        self.assert_verified()


@pytest.fixture
def world(tmp_path: Path, kafka_bootstrap: str, home_dsn: str) -> _World:
    """A world without any record."""
    return _World(tmp_path, kafka_bootstrap, home_dsn)


@pytest.fixture
def commands(
    world: _World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    """A terminal beside the world."""
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", world.topic.bootstrap)
    return CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: world.home_dsn}
    )


def _dead(partition: int) -> Sent:
    return Sent(value=b"no event", partition=partition, fate="BAD_MAGIC")


def _refused(world: _World, event_id: str, partition: int) -> Sent:
    return sent(
        world.contract,
        event_id=event_id,
        sensor="forbidden",
        partition=partition,
        fate="REJECTED_BY_POSTGRES",
    )


def _again(records: Sequence[Sent], fate: str) -> list[Sent]:
    return [
        Sent(value=record.value, partition=1 - record.partition, fate=fate)
        for record in records
    ]


@pytest.mark.long
def test_two_topics_are_one_stream_through_kills(world: _World) -> None:
    """An ID that one topic had is a repeat in the other; a kill counts nothing twice.

    The same offsets of the same partition numbers are in both topics. Undecodable
    records and rows that the user's table refuses are dead letters of their topic.
    """
    world.execute(_OWN_TABLE)
    eu, us = numbered(world, 0, 100), numbered(world, 100, 100)
    eu_dead = [_dead(0), _refused(world, "forbidden-eu", 1)]
    us_dead = [_refused(world, "forbidden-us", 0), _dead(1)]
    everything = world.send(world.eu, [*eu[:50], *eu_dead, *eu[50:]])
    everything |= world.send(world.us, [*us[:50], *us_dead, *us[50:]])
    for fault in ("after:voted:2:SIGKILL", "before:sealed:2:SIGKILL"):
        with world.driver(batch=60, fault=fault) as driver:
            assert driver.wait() == -9, driver.text
    world.run_to_the_end(batch=60)
    world.assert_placed(everything)

    everything |= world.send(world.us, _again(eu[:40], "duplicate"))
    everything |= world.send(world.eu, _again(us[:40], "duplicate"))
    conflict = sent(world.contract, event_id="n7", amount=70, fate="ID_CONFLICT")
    everything |= world.send(world.us, [conflict])
    with world.driver(fault="before:sealed:1:SIGKILL") as driver:
        assert driver.wait() == -9, driver.text
    world.run_to_the_end()
    world.assert_placed(everything)
    amounts = sum(number % 100 for number in range(200))
    windows = "SELECT sum(readings)::int, sum(total)::int FROM readings_by_hour"
    assert [(200, amounts)] == world.fetch(windows)


def test_the_rows_are_those_of_the_page(world: _World) -> None:
    """docs/pipelines.md shows them; of e2 the other copy may as well be kept."""
    amounts = {"e1": 3, "e2": 5, "u1": 7}
    readings = {
        event_id: sent(world.contract, event_id=event_id, amount=amount)
        for event_id, amount in amounts.items()
    }
    repeat = replace(readings["e2"], fate="duplicate")
    everything = world.send(world.us, [readings["u1"], repeat, _dead(0)])
    everything |= world.send(world.eu, [readings["e1"], readings["e2"]])
    world.run_to_the_end()
    world.assert_placed(everything)
    rows = world.fetch(
        "SELECT event_id, amount, kafka_topic, kafka_partition, kafka_offset "
        "FROM readings ORDER BY 1"
    )
    assert [
        ("e1", 3, world.eu.name, 0, 0),
        ("e2", 5, rows[1][2], 0, 1),
        ("u1", 7, world.us.name, 0, 0),
    ] == rows


@pytest.mark.long
def test_commands_and_the_relay_tell_the_topics_apart(
    world: _World, commands: CommandLine
) -> None:
    """Each dead letter goes to the topic that belongs to its own."""
    repeated = numbered(world, 0, 20)
    everything = world.send(world.eu, [*repeated, _dead(0)])
    repeats = [*_again(repeated, "duplicate"), _dead(0), _dead(1)]
    everything |= world.send(world.us, repeats)
    world.run_to_the_end()
    world.assert_placed(everything)
    _assert_relayed(world)

    code, told, error = commands.run("verify", "readings", "--recount", "--json")
    assert 0 == code, error
    checks = {check["name"]: check for check in json.loads(told)["checks"]}
    assert len(everything) == checks["recount"]["checked"]
    _, told, _ = commands.run("status", "readings", "--json")
    status = json.loads(told)
    assert 0 == status["lag"]
    assert {(one.name, p): 0 for one in (world.eu, world.us) for p in (0, 1)} == {
        (part["topic"], part["partition"]): part["lag"] for part in status["partitions"]
    }
    code, told, _ = commands.run("why", "readings", "n3")
    assert 0 == code
    assert f"{world.eu.name}[1]" in told
    assert f"{world.us.name}[0]" in told
    code, told, _ = commands.run("why", "readings", "never-sent")
    assert 1 == code
    assert "Kafka did not answer" not in told

    # A range of the second topic brings nothing that was not there.
    done = world.run_batch("again", f"{world.us.name}:1:0-10")
    assert (10, 10) == (done["read"], done["duplicate"])
    world.assert_verified()


def _assert_relayed(world: _World) -> None:
    """Each topic has dead letters of its own, and the group stands in both."""
    assert [] == relay_round(world.home_dsn, world.eu.bootstrap)
    letters = {
        topic.name: [
            message.headers["__connect.errors.partition"]
            for message in read_committed(topic.bootstrap, f"{topic.name}.dlq")
        ]
        for topic in (world.eu, world.us)
    }
    assert {world.eu.name: ["0"], world.us.name: ["0", "1"]} == letters
    positions = {
        (topic, partition): offset
        for topic, partition, offset in world.fetch(
            "SELECT topic, partition, next_offset FROM tallyweir.partition_progress"
        )
    }
    assert positions == _group(world, positions)


def _group(world: _World, places: Mapping[tuple[str, int], int]) -> dict[Any, int]:
    consumer = Consumer(
        {
            "bootstrap.servers": world.eu.bootstrap,
            "group.id": advisory_group("readings"),
            "log_level": 0,
        }
    )
    try:
        asked = [KafkaTopicPartition(topic, part) for topic, part in places]
        return {
            (one.topic, one.partition): one.offset
            for one in consumer.committed(asked, timeout=30)
        }
    finally:
        consumer.close()


@pytest.mark.long
def test_a_topic_is_added_left_out_and_read_again(world: _World) -> None:
    """It begins at the start of its log, and goes on from where it was left."""
    world.read("{topic}")
    everything = world.send(world.eu, numbered(world, 0, 40))
    gone = world.send(world.us, numbered(world, 100, 40))
    world.us.delete_before(5)
    world.run_to_the_end()
    world.assert_placed(everything)

    world.read("[{topic}, {topic}-us]")
    world.run_to_the_end()
    everything |= {
        place: record for place, record in gone.items() if place[1:] >= (0, 5)
    }
    world.assert_placed(everything)

    world.read("{topic}-us")
    unread = world.send(world.eu, numbered(world, 40, 20))
    everything |= world.send(world.us, numbered(world, 140, 20))
    left = world.run_to_the_end().logged("topic left out")
    assert {f"{world.eu.name}[{part}]": 20 for part in (0, 1)} == left["positions"]
    world.assert_placed(everything)

    world.read("[{topic}-us, {topic}]")
    world.run_to_the_end()
    world.assert_placed(everything | unread)


def _assert_stopped(driver: WatchedDriver, code: str, topic: str) -> None:
    assert driver.wait() == _CONFIGURATION, driver.text
    assert code in driver.lines, driver.text
    assert topic in driver.text


@pytest.mark.long
def test_damage_to_one_of_two_topics_stops_the_pipeline(
    world: _World, commands: CommandLine
) -> None:
    """The error names it; the other topic's records are not gone past meanwhile."""
    everything = world.send(world.eu, numbered(world, 0, 40))
    everything |= world.send(world.us, numbered(world, 100, 40))
    world.run_to_the_end()
    lost = world.send(world.us, numbered(world, 200, 40))
    world.us.delete_before(30)
    with world.driver(once=True) as driver:
        _assert_stopped(driver, "RETENTION_GAP", f"{world.us.name}[0]")
    code, told, error = commands.run(
        "accept-gap", "readings", "--reason", "a test's retention"
    )
    assert 0 == code, error
    assert f"lost: {world.us.name}[0] 20..30" in told
    assert world.eu.name + "[" not in told
    world.run_to_the_end()
    everything |= {
        place: record
        for place, record in lost.items()
        if place[1] == 1 or place[2] >= 30
    }
    world.assert_placed(everything)

    with world.driver() as driver:
        driver.wait_for("driver started")
        world.us.delete()
        world.us.create(2)
        _assert_stopped(driver, "TOPIC_RECREATED", world.us.name)
    world.us.delete()
    with world.driver() as driver:
        _assert_stopped(driver, "TOPIC_MISSING", world.us.name)
    world.assert_placed(everything)


def _at(world: _World, event_id: str, hours: float, partition: int) -> Sent:
    at = NOON + dt.timedelta(hours=hours)
    return sent(world.contract, event_id=event_id, at=at, partition=partition)


@pytest.mark.long
def test_the_watermark_waits_for_the_slower_topic(world: _World) -> None:
    """Also for one that has had no event yet, so that its first ones are not late."""
    watermark = "SELECT watermark FROM tallyweir.pipeline"
    world.send(world.eu, [_at(world, f"eu{part}", 5, part) for part in (0, 1)])
    with world.driver() as driver:
        world.await_read(2)
        assert world.value(watermark) is None
        world.send(world.us, [_at(world, f"us{part}", 2, part) for part in (0, 1)])
        world.await_read(4)
        slower = NOON + dt.timedelta(hours=2 - 1)
        world.await_value(watermark, lambda found: found == slower)
        world.send(world.us, [_at(world, f"later{part}", 7, part) for part in (0, 1)])
        slower = NOON + dt.timedelta(hours=5 - 1)
        world.await_value(watermark, lambda found: found == slower)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert 6 == world.value("SELECT count(*) FROM readings")


@pytest.mark.long
def test_each_topic_may_have_its_own_version_of_the_contract(
    world: _World, tmp_path: Path
) -> None:
    """An old topic and a new one are one stream, in the columns of the newer."""
    unit = {"name": "unit", "type": "string", "default": "mm"}
    fields = [*READING["fields"], unit]  # type: ignore[misc]
    newer = write_contract(tmp_path / "reading.v2.avsc", {**READING, "fields": fields})
    text = world.pipeline_file.read_text()
    world.pipeline_file.write_text(text.replace("reading.v1", "reading.v2"))
    everything = world.send(world.eu, [sent(world.contract, event_id="old")])
    record = {**reading(event_id="new"), "unit": "cm"}
    everything |= world.send(world.us, [Sent(value=encode(newer, record))])
    world.run_to_the_end()
    world.assert_placed(everything)
    rows = "SELECT event_id, unit, kafka_topic FROM readings ORDER BY 1"
    assert [
        ("new", "cm", world.us.name),
        ("old", "mm", world.eu.name),
    ] == world.fetch(rows)
