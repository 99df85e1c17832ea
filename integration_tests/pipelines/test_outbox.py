"""The outbox: messages are published with their batch, and sent once it is decided."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld, numbered
from integration_tests.harness.postgres_driver import (
    PIPELINE,
    TP,
    PostgresDriver,
    Row,
    execute,
    layout_of,
    query,
)
from integration_tests.harness.relayed_home import (
    Relayed,
    read_committed,
    relay_round,
    without_repeats,
)
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.relay import service
from tallyweir.sinks.postgres.audit import Receipt, verify
from tallyweir.sinks.postgres.outputs.outbox_table import OutboxTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.records.relay_feed import OUTBOX, RelayFeed
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.errors import RetryableError

_FIELDS = (
    Column(name="number", postgres_type="bigint"),
    Column(name="raw", postgres_type="bytea"),
    Column(name="nested", postgres_type="jsonb"),
)


def _outbox(topic: str, number: int, key_type: str = "text") -> OutboxTable:
    return OutboxTable(
        table=f"outbox:{topic}",
        staging_table=f"output_{number}",
        topic=topic,
        fields=_FIELDS,
        key=Column(name="name", postgres_type=key_type),
    )


class _Numbers:
    """A driver with two outbox outputs, and the topics that they send to."""

    def __init__(self, dsn: str, bootstrap: str, *, key_type: str = "text") -> None:
        self.dsn = dsn
        self.bootstrap = bootstrap
        ensure_topic(bootstrap, TP.topic, partitions=1)
        name = uuid.uuid4().hex[:8]
        self.topics = [f"a-{name}", f"b-{name}"]
        self.layout: PipelineLayout = layout_of(
            *(_outbox(topic, n, key_type) for n, topic in enumerate(self.topics))
        )
        self.driver = PostgresDriver(dsn=dsn, layout=self.layout)

    def publish(self, rows: int, *, key: str | bytes | None = "k") -> None:
        """Publish a batch of so many events, each a message of both topics."""
        plan = self.driver.plan(rows)
        (covered,) = plan.ranges
        values: list[Row] = [
            (
                *(covered.from_offset + i, b"\x00" * 100, '{"z": "\\u0000"}'),
                *(key, f"id-{covered.from_offset + i}"),
            )
            for i in range(rows)
        ]
        positioned = self.driver.positioned(plan, values)
        staged = {"output_0": positioned, "output_1": positioned}
        self.driver.publish(plan, self.driver.stage(plan, staged))

    def read(self, topic: str) -> list[Relayed]:
        """Read what consumers of committed messages get."""
        return read_committed(self.bootstrap, topic)

    def numbers(self, topic: str) -> list[int]:
        """The numbers in the messages of a topic, in order."""
        return [json.loads(m.value or b"")["number"] for m in self.read(topic)]

    def waiting(self) -> int:
        """How many messages the outbox has."""
        ((rows,),) = query(self.dsn, "SELECT count(*) FROM tallyweir.outbox")
        return int(rows)

    def audit(self) -> Receipt:
        """Verify, with a definition that an audit can read."""
        definition = {
            "source": {"topic": TP.topic, "schema": "s", "event_id": {"field": "i"}},
            "outputs": [
                {"kind": "outbox", "table": f"outbox:{t}"} for t in self.topics
            ],
        }
        definition["source"]["event_time"] = "t"  # type: ignore[index]
        with psycopg.connect(self.dsn) as connection:
            connection.execute(
                "UPDATE tallyweir.pipeline SET definition = %s",
                (json.dumps({**definition, "deduplicate": None}),),
            )
            connection.commit()
            return verify(connection, PIPELINE)


@pytest.fixture
def numbers(home_dsn: str, kafka_bootstrap: str) -> _Numbers:
    """A pipeline that has not published anything yet."""
    return _Numbers(home_dsn, kafka_bootstrap)


def test_a_message_is_a_cloud_event_of_json(numbers: _Numbers) -> None:
    """Bytes are base64, nested values as they were; the event keeps its ID."""
    numbers.publish(1)
    assert [] == relay_round(numbers.dsn, numbers.bootstrap)
    topic = numbers.topics[0]
    (message,) = numbers.read(topic)
    assert {
        "number": 0,
        "raw": "AAAA" * 33 + "AA==",
        "nested": {"z": "\x00"},
    } == json.loads(message.value or b"")
    assert b"k" == message.key
    ((installation,),) = query(
        numbers.dsn, "SELECT installation_id FROM tallyweir.installation"
    )
    assert {
        "ce_specversion": "1.0",
        "ce_type": "tallyweir.outbox",
        "ce_source": f"/tallyweir/{installation}/{PIPELINE}",
        "ce_id": f"outbox/{topic}/{TP.topic}/0/0",
        "ce_eventid": "id-0",
        "content-type": "application/json",
    } == message.headers


@pytest.mark.parametrize(
    ("key_type", "key", "sent"),
    [("bytea", b"\x00\xff", b"\x00\xff"), ("bigint", 17, b"17"), ("text", None, None)],
)
def test_a_key_is_bytes_or_text(
    home_dsn: str, kafka_bootstrap: str, key_type: str, key: bytes, sent: bytes | None
) -> None:
    """What is no bytes is written as people read it; nothing stays nothing."""
    numbers = _Numbers(home_dsn, kafka_bootstrap, key_type=key_type)
    numbers.publish(1, key=key)
    relay_round(numbers.dsn, numbers.bootstrap)
    (message,) = numbers.read(numbers.topics[1])
    assert sent == message.key


def test_messages_are_sent_in_order_and_deleted_with_the_cursors_move(
    numbers: _Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk may end between the two messages of one event."""
    monkeypatch.setattr(service, "MESSAGES_MAX", 3)
    numbers.publish(4)
    numbers.publish(3)
    assert 14 == numbers.waiting()
    assert not numbers.audit().failed
    assert [] == relay_round(numbers.dsn, numbers.bootstrap)
    for topic in numbers.topics:
        assert list(range(7)) == numbers.numbers(topic)
    assert 0 == numbers.waiting()
    assert [(14,)] == query(numbers.dsn, "SELECT messages FROM tallyweir.relay_cursor")
    numbers.publish(2)
    relay_round(numbers.dsn, numbers.bootstrap)
    assert list(range(9)) == numbers.numbers(numbers.topics[0])
    receipt = numbers.audit()
    assert not receipt.failed
    (check,) = (check for check in receipt.checks if check.name == "outbox")
    assert 18 == check.checked


def test_a_cursor_that_does_not_move_sends_the_same_ids_again(
    numbers: _Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has the messages and the home does not know: they are repeated."""
    numbers.publish(3)

    def fail(*_: object, **__: object) -> None:
        raise RetryableError("POSTGRES_UNREACHABLE", saw="s", why="w", fix="f")

    with monkeypatch.context() as patch:
        patch.setattr(RelayFeed, "move_cursor", fail)
        assert ["POSTGRES_UNREACHABLE"] == relay_round(numbers.dsn, numbers.bootstrap)
    assert 6 == numbers.waiting()
    relay_round(numbers.dsn, numbers.bootstrap)
    messages = numbers.read(numbers.topics[0])
    assert [0, 1, 2, 0, 1, 2] == numbers.numbers(numbers.topics[0])
    assert 3 == len(without_repeats(messages))


def test_messages_that_changed_while_they_were_sent_are_not_deleted(
    numbers: _Numbers,
) -> None:
    """The cursor moves past exactly what was sent, or not at all."""
    numbers.publish(2)
    feed = RelayFeed(numbers.dsn)
    assert feed.try_lock()
    after = feed.read_cursor(PIPELINE, OUTBOX)
    found = feed.read_outbox(PIPELINE, after, messages_max=10, bytes_max=10**6)
    assert 4 == len(found)
    with pytest.raises(RetryableError, match="RELAY_CURSOR_MOVED"):
        feed.move_cursor(PIPELINE, OUTBOX, after=after, to=found[-1].place, messages=3)
    assert not feed.is_open
    assert 4 == numbers.waiting()


@pytest.mark.parametrize(
    "forgery",
    [
        "DELETE FROM tallyweir.outbox WHERE kafka_offset = 1",
        "UPDATE tallyweir.batch_output SET rows = rows - 1",
        "UPDATE tallyweir.outbox SET topic = 'x' WHERE topic LIKE 'a-%'",
        (
            "INSERT INTO tallyweir.relay_cursor VALUES "
            "('numbers', 'outbox', 1, 'numbers', 0, 0, 1)"
        ),
    ],
)
def test_verify_finds_messages_that_are_missing_or_too_many(
    numbers: _Numbers, forgery: str
) -> None:
    """What was published waits or was sent; nothing else."""
    numbers.publish(3)
    assert not numbers.audit().failed
    execute(numbers.dsn, forgery)
    found = [check.name for check in numbers.audit().failed]
    assert "outbox" in found
    assert {"outbox", "row_values"}.issuperset(found)


_PIPELINE = (
    SOURCE
    + """
    outputs:
      - append: {{table: readings}}
      - outbox: {{topic: {topic}.out, key: sensor, select: [event_id, amount]}}
"""
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_fills_the_outbox_and_the_relay_empties_it(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """From the pipeline file to the other topic, and every audit agrees."""
    migrate(empty_dsn)
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.write_pipeline(_PIPELINE)
    first = numbered(world, 0, 20)
    records = world.topic.send([*first, *numbered(world, 20, 20)])
    world.run_to_the_end(batch=15)
    world.assert_verified()
    assert 40 == world.value("SELECT count(*) FROM tallyweir.outbox")
    assert 40 == world.value(
        "SELECT sum(rows) FROM tallyweir.batch_output WHERE kind = 'outbox'"
    )
    assert [] == relay_round(empty_dsn, kafka_bootstrap)
    messages = read_committed(kafka_bootstrap, f"{world.topic.name}.out")
    sent = [json.loads(message.value or b"") for message in messages]
    assert {f"n{i}" for i in range(len(records))} == {m["event_id"] for m in sent}
    assert len(records) == len(sent)
    assert {b"s1"} == {message.key for message in messages}
    assert {message.partition for message in messages} == {messages[0].partition}
    assert all({"event_id", "amount"} == set(message) for message in sent)
    # Of one Kafka partition, and so of one Kafka key, in the order of the source.
    numbers_sent = [int(message["event_id"][1:]) for message in sent]
    for partition in (0, 1):
        assert list(range(partition, 40, 2)) == [
            number for number in numbers_sent if number % 2 == partition
        ]
    world.assert_verified()
    assert 0 == world.value("SELECT count(*) FROM tallyweir.outbox")
