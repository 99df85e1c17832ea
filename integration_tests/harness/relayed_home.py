"""A home database with finished batches of dead letters, and the broker beside it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import psycopg
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from integration_tests.harness.written_topic import WrittenTopic, read_topic
from tallyweir.services.relay.service import RelayMetrics, RelayService

DEADLINE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Relayed:
    """A message as a consumer of committed messages gets it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def id(self) -> tuple[str, str]:
        """By what a consumer drops repeats."""
        return self.headers["ce_source"], self.headers["ce_id"]


@dataclass(kw_only=True)
class RelayedHome:
    """Publishes batches as a driver would, straight into the tables.

    Each record of a batch becomes a dead letter; its key is the remainder of its
    offset by three, so that keys repeat.
    """

    dsn: str
    bootstrap: str
    topic: str = field(default_factory=lambda: f"events-{uuid.uuid4().hex[:8]}")
    pipeline: str = field(default_factory=lambda: f"p-{uuid.uuid4().hex[:8]}")
    partitions: int = 2
    _sequence: int = 0
    _offsets: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        WrittenTopic(self.bootstrap, self.topic).create(self.partitions)
        self.begin_pipeline()

    def begin_pipeline(self) -> None:
        """Register the pipeline, as its first claim does."""
        with psycopg.connect(self.dsn) as home:
            home.execute(
                "INSERT INTO tallyweir.pipeline (pipeline, definition, "
                "definition_hash, shards, bucket_seconds) VALUES (%s, '{}', '', 1, 1)",
                (self.pipeline,),
            )
            home.execute(
                "INSERT INTO tallyweir.epoch_claim (pipeline, epoch, host, process_id) "
                "VALUES (%s, 1, '', 0)",
                (self.pipeline,),
            )
            for partition in range(self.partitions):
                self._offsets[partition] = 0
                home.execute(
                    "INSERT INTO tallyweir.partition_progress (pipeline, topic, "
                    "partition, topic_id, next_offset) VALUES (%s, %s, %s, '', 0)",
                    (self.pipeline, self.topic, partition),
                )

    def publish(self, letters: int, *, branch: str | None = None) -> None:
        """Publish a batch of so many dead letters per partition.

        Args:
            letters: Per partition.
            branch: Decided with the batch and not committed yet.
        """
        self._sequence += 1
        with psycopg.connect(self.dsn) as home:
            home.execute(
                "INSERT INTO tallyweir.batch (pipeline, sequence, epoch, "
                "spark_batch_id, checksum, planned_at, staged_at, published_at) "
                "VALUES (%s, %s, 1, %s, 0, now(), now(), now())",
                (self.pipeline, self._sequence, self._sequence),
            )
            for partition in range(self.partitions):
                self._publish_partition(home, partition, letters)
            home.execute(
                "UPDATE tallyweir.pipeline SET last_sequence = %s WHERE pipeline = %s",
                (self._sequence, self.pipeline),
            )
            if branch is not None:
                home.execute(
                    "INSERT INTO tallyweir.batch_branch (pipeline, sequence, branch, "
                    "gid) VALUES (%s, %s, %s, %s)",
                    (self.pipeline, self._sequence, branch, uuid.uuid4().hex),
                )

    def commit_branches(self) -> None:
        """Note every branch as committed."""
        self.execute("UPDATE tallyweir.batch_branch SET committed_at = now()")

    def _publish_partition(
        self, home: psycopg.Connection[Any], partition: int, letters: int
    ) -> None:
        start = self._offsets[partition]
        end = self._offsets[partition] = start + letters
        home.execute(
            "INSERT INTO tallyweir.batch_partition VALUES "
            "(%s, %s, %s, %s, %s, %s, %s, 0, 0, %s, 0, 0, 0)",
            (
                *(self.pipeline, self._sequence, self.topic, partition),
                *(start, end, letters, letters),
            ),
        )
        home.execute(
            "UPDATE tallyweir.partition_progress SET next_offset = %s "
            "WHERE pipeline = %s AND partition = %s",
            (end, self.pipeline, partition),
        )
        for offset in range(start, end):
            self.add_letter(
                home, partition, offset, payload=f"{partition}/{offset}".encode()
            )

    def add_letter(
        self,
        home: psycopg.Connection[Any],
        partition: int,
        offset: int,
        *,
        payload: bytes | None,
    ) -> None:
        """Write one dead letter of the newest batch."""
        home.execute(
            "INSERT INTO tallyweir.dead_letter (pipeline, kafka_topic, "
            "kafka_partition, kafka_offset, sequence, kafka_timestamp, reason, detail, "
            "key, payload) VALUES (%s, %s, %s, %s, %s, '2026-01-02 03:04:05.678+00', "
            "'MALFORMED', 'ended at byte 9: ß', %s, %s)",
            (
                *(self.pipeline, self.topic, partition, offset, self._sequence),
                *(str(offset % 3).encode(), payload),
            ),
        )

    def execute(self, statement: str) -> None:
        """Change the database as its owner may."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    @property
    def installation(self) -> str:
        """Tells this home from every other."""
        with psycopg.connect(self.dsn) as home:
            row = home.execute(
                "SELECT installation_id FROM tallyweir.installation"
            ).fetchone()
        assert row is not None
        return str(row[0])

    def read_dead_letters(self) -> list[Relayed]:
        """Read the dead letters that consumers of committed messages see now."""
        return read_committed(self.bootstrap, f"{self.topic}.dlq")

    def read_group(self) -> dict[int, int]:
        """Read what the advisory group shows, by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"tallyweir.{self.pipeline}",
                "log_level": 0,
            }
        )
        places = [KafkaTopicPartition(self.topic, p) for p in range(self.partitions)]
        try:
            found = consumer.committed(places, timeout=DEADLINE_S)
        finally:
            consumer.close()
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def move_group(self, offset: int) -> None:
        """Move the advisory group as a person might, behind the relay's back."""
        group = f"tallyweir.{self.pipeline}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        places = [
            KafkaTopicPartition(self.topic, partition, offset)
            for partition in range(self.partitions)
        ]
        asked = ConsumerGroupTopicPartitions(group, places)
        admin.alter_consumer_group_offsets([asked])[group].result(DEADLINE_S)


def read_committed(bootstrap: str, topic: str) -> list[Relayed]:
    """Read a topic as it is now, partition by partition.

    Nothing while the topic does not exist.
    """
    return [
        Relayed(
            partition=message.partition() or 0,
            key=message.key(),
            value=message.value(),
            headers={
                name: bytes(value).decode()
                for name, value in cast(
                    "list[tuple[str, bytes]]", message.headers() or []
                )
            },
        )
        for message in read_topic(bootstrap, topic)
    ]


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Poll until something is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what} does not come true"
        time.sleep(0.1)


def relay_once(home: RelayedHome) -> tuple[list[str], RelayMetrics]:
    """Do one round here; return the codes of errors, and the metrics."""
    metrics = RelayMetrics()
    service = RelayService(home.dsn, home.bootstrap, every_s=1, metrics=metrics)
    was_active, failures = service.run_once()
    assert was_active or failures
    return failures, metrics


def values(messages: list[Relayed]) -> list[bytes | None]:
    """The payloads, sorted."""
    return sorted((m.value for m in messages), key=str)


def expected(letters: int) -> list[bytes | None]:
    """The payloads of so many dead letters per partition, sorted."""
    return sorted(
        (f"{p}/{o}".encode() for p in (0, 1) for o in range(letters)), key=str
    )


def without_repeats(messages: list[Relayed]) -> list[Relayed]:
    """What a consumer keeps that drops repeats by ID."""
    return list({message.id: message for message in reversed(messages)}.values())[::-1]


def check_order(messages: list[Relayed]) -> None:
    """Hold that a consumer who drops repeats sees each key's offsets rising."""
    seen: set[tuple[str, str]] = set()
    last: dict[tuple[int, bytes | None], int] = {}
    for message in messages:
        if message.id in seen:
            continue
        seen.add(message.id)
        key = (message.partition, message.key)
        offset = int(message.headers["__connect.errors.offset"])
        assert last.get(key, -1) < offset, (key, offset)
        last[key] = offset


def relay_round(dsn: str, bootstrap: str) -> list[str]:
    """Do one round of a relay; return the codes of errors."""
    service = RelayService(dsn, bootstrap, every_s=1, metrics=RelayMetrics())
    return service.run_once()[1]
