"""What ``emit`` calls sent lies in Kafka, to the byte and in the planned partition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tallyweir.schemas.codec import decode, diagnose
from tallyweir.schemas.contract import load_contract, versions_of
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.services.local.datasets.page_views import read_page_views
from tallyweir.services.produce.emit import emit, plan_faults
from tallyweir.services.produce.faults import FaultRates, default_partition
from tallyweir.services.produce.producer import Delivery, EventProducer
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = load_contract("flight_departure.v1")
PARTITIONS = 3
ALL_FAULTS = FaultRates(
    duplicates=0.2,
    poison=0.05,
    conflicts=0.05,
    disorder=0.1,
    invalid=("distance_miles", -1),
)
Stored = tuple[int, bytes, bytes]
"""Partition, key and payload."""


def flights(count: int) -> list[dict[str, object]]:
    """Valid records with distinct IDs."""
    return [
        {
            "event_id": f"E{number}",
            "scheduled_at": 1_700_000_000_000_000 + number,
            "carrier": "UA",
            "flight": number,
            "tailnum": None,
            "origin": "EWR",
            "destination": "IAH",
            "distance_miles": 1400,
            "dep_delay_minutes": None,
            "arr_delay_minutes": None,
            "air_time_minutes": None,
        }
        for number in range(count)
    ]


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Stored]:
    """Everything in a topic, partition by partition, up to its end now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex})
    places = [TopicPartition(topic, number, 0) for number in range(partitions)]
    ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
    consumer.assign(places)
    stored: list[Stored] = []
    deadline = time.monotonic() + 30
    while len(stored) < sum(ends):
        assert time.monotonic() < deadline, f"{len(stored)} of {sum(ends)} came"
        batch = consumer.consume(min(1_000, sum(ends) - len(stored)), timeout=1)
        for message in batch:
            assert message.error() is None
            stored.append(
                (message.partition(), message.key(), message.value())  # type: ignore[arg-type]  # ours have all three
            )
    consumer.close()
    return stored


@pytest.fixture
def topic(kafka_bootstrap: str) -> str:
    """A fresh topic of three partitions."""
    name = f"emit-{uuid.uuid4().hex}"
    assert ensure_topic(kafka_bootstrap, name, partitions=PARTITIONS) == PARTITIONS
    return name


def test_the_topic_holds_what_the_report_says(kafka_bootstrap: str, topic: str) -> None:
    """Counted by content alone, with every kind of fault."""
    plan = plan_faults(
        contract=CONTRACT,
        event_id="event_id",
        partitions=PARTITIONS,
        rates=ALL_FAULTS,
        seed=11,
    )
    report = emit(
        EventProducer(kafka_bootstrap), topic=topic, plan=plan, records=flights(5_000)
    )
    stored = read_all(kafka_bootstrap, topic, PARTITIONS)
    expected = report.expected
    assert report.delivered == expected.sent == len(stored)

    known = versions_of(CONTRACT)
    copies: Counter[bytes] = Counter()
    first: dict[object, bytes] = {}
    elsewhere = undecodable = invalid = 0
    for partition, key, payload in stored:
        elsewhere += partition != default_partition(key, PARTITIONS)
        if diagnose(payload, known) is not None:
            undecodable += 1
            continue
        record = decode(payload, known)
        if record["distance_miles"] == -1:
            invalid += 1
            continue
        copies[payload] += 1
        first.setdefault(record["event_id"], payload)
    assert len(first) == expected.unique_valid == 5_000
    assert len(copies) - len(first) == expected.conflicts
    assert copies.total() - len(copies) == sum(expected.duplicates.values())
    assert elsewhere == expected.duplicates["repeat_elsewhere"]
    assert invalid == expected.poison["invalid"]
    assert undecodable + invalid == sum(expected.poison.values())


def test_events_of_one_key_keep_their_order(kafka_bootstrap: str, topic: str) -> None:
    """One key, one partition, the order of sending."""
    producer = EventProducer(kafka_bootstrap)
    sent = [payload for _, payload in read_page_views(20_000)]
    for payload in sent:
        producer.send(topic, key=b"one", payload=payload)
    assert producer.flush() == 20_000
    stored = read_all(kafka_bootstrap, topic, PARTITIONS)
    assert [payload for _, _, payload in stored] == sent


def test_a_full_queue_makes_send_wait(kafka_bootstrap: str, topic: str) -> None:
    """Back-pressure loses nothing, however short the queue."""
    producer = EventProducer(kafka_bootstrap, queue_messages_max=10)
    for number in range(1_000):
        producer.send(topic, key=b"%d" % number, payload=b"x")
    assert producer.flush() == 1_000
    assert (producer.sent, producer.failed, producer.waiting) == (1_000, 0, 0)


def test_each_report_tells_where_its_message_lies(
    kafka_bootstrap: str, topic: str
) -> None:
    """Partition and offset are the broker's, and come once per message."""
    reports: list[Delivery] = []
    producer = EventProducer(kafka_bootstrap)
    for number in range(10):
        producer.send(
            topic,
            key=b"k",
            payload=b"%d" % number,
            partition=2,
            on_report=reports.append,
        )
    assert reports == []
    producer.flush()
    assert [(r.partition, r.offset, r.error) for r in reports] == [
        (2, offset, None) for offset in range(10)
    ]


def test_a_message_the_broker_refuses_is_not_called_sent(
    kafka_bootstrap: str, topic: str
) -> None:
    """Flush counts what was delivered and what was not."""
    reports: list[Delivery] = []
    producer = EventProducer(kafka_bootstrap, delivery_timeout_s=2)
    producer.send(topic, key=b"k", payload=b"good")
    producer.send(topic, key=b"k", payload=b"x", partition=99, on_report=reports.append)
    with pytest.raises(RetryableError, match=r"Of 2 messages .* 1 were delivered: 1 "):
        producer.flush()
    (report,) = reports
    assert not report.is_delivered
    assert report.offset == -1


def test_without_a_broker_nothing_is_called_sent() -> None:
    """Port 9 refuses; the error says how many are in the air."""
    producer = EventProducer("127.0.0.1:9", delivery_timeout_s=1)
    producer.send("any", key=b"k", payload=b"x")
    with pytest.raises(RetryableError, match="0 were delivered"):
        producer.flush()
    with pytest.raises(RetryableError, match="KAFKA_UNREACHABLE"):
        ensure_topic("127.0.0.1:9", "any")


def test_topics_are_never_made_by_accident(kafka_bootstrap: str, topic: str) -> None:
    """A missing topic and another number of partitions are errors."""
    missing = f"missing-{uuid.uuid4().hex}"
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="TOPIC_MISSING"):
            ensure_topic(kafka_bootstrap, missing)
    assert ensure_topic(kafka_bootstrap, topic) == PARTITIONS
    assert ensure_topic(kafka_bootstrap, topic, partitions=PARTITIONS) == PARTITIONS
    with pytest.raises(ConfigurationError, match="TOPIC_PARTITIONS"):
        ensure_topic(kafka_bootstrap, topic, partitions=PARTITIONS + 1)
    with pytest.raises(ConfigurationError, match="TOPIC_REFUSED"):
        ensure_topic(kafka_bootstrap, "no such/name", partitions=1)


def run_emit(
    folder: Path, bootstrap: str, topic: str, *arguments: str, rows: str
) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own."""
    (folder / "pipeline.yaml").write_text(
        f"source: {{topic: {topic}, schema: flight_departure.v1, event_id: event_id}}\n"
    )
    (folder / "flights.csv").write_text(rows)
    return subprocess.run(
        [
            *(sys.executable, "-m", "tallyweir.services.cli", "emit", "pipeline.yaml"),
            *("--input", "flights.csv", *arguments),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "TALLYWEIR_KAFKA_BOOTSTRAP": bootstrap,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


HEADER = ",".join(field.name for field in CONTRACT.fields)
ROW = "E{},2013-01-01T10:15:00Z,UA,1545,,EWR,IAH,1400,2,,227\n"


def test_the_command_sends_a_file_and_reports_in_json(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    """The last line of stdout is one object that counts what was sent."""
    rows = HEADER + "\n" + "".join(ROW.format(number) for number in range(100))
    topic = f"emit-{uuid.uuid4().hex}"
    done = run_emit(
        tmp_path,
        kafka_bootstrap,
        topic,
        *("--partitions", "2", "--duplicates", "0.5", "--events", "50", "--json"),
        rows=rows,
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["unique_valid"] == 50
    assert report["delivered"] == report["sent"]
    stored = read_all(kafka_bootstrap, topic, 2)
    assert len(stored) == report["sent"] > 50
    assert len({key for _, key, _ in stored}) == 50


def test_the_command_names_the_line_of_a_bad_cell(
    kafka_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Exit code 78 and four lines, no stack trace."""
    rows = f"{HEADER}\n{ROW.format(1)}{ROW.format(2).replace('1400', 'far')}"
    done = run_emit(tmp_path, kafka_bootstrap, topic, rows=rows)
    assert done.returncode == 78
    assert "Line 3: column distance_miles: 'far' is no int" in done.stderr
    assert "Traceback" not in done.stderr
