"""One topic of a real broker, written to and damaged by a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.cimpl import NewTopic

from integration_tests.harness.readings import Sent

_DEADLINE_S = 60.0

_T = TypeVar("_T")


class WrittenTopic:
    """A topic that the test makes, fills, and takes away again."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, partitions: int) -> None:
        """Make the topic; waits until a topic of that name is fully deleted."""
        self._insist(
            lambda: self._admin.create_topics(
                [NewTopic(self.name, partitions, replication_factor=1)]
            )[self.name].result(timeout=_DEADLINE_S),
            while_=KafkaError.TOPIC_ALREADY_EXISTS,
        )

    def delete(self) -> None:
        """Take the topic away."""
        self._admin.delete_topics([self.name])[self.name].result(timeout=_DEADLINE_S)

    def grow_to(self, partitions: int) -> None:
        """Add partitions."""
        self._admin.create_partitions([NewPartitions(self.name, partitions)])[
            self.name
        ].result(timeout=_DEADLINE_S)

    def delete_before(self, offset: int, *, partition: int = 0) -> None:
        """Do what retention does: delete the records before an offset."""
        place = KafkaTopicPartition(self.name, partition, offset)
        for future in self._admin.delete_records([place]).values():
            future.result(timeout=_DEADLINE_S)

    def send(self, records: Sequence[Sent]) -> dict[tuple[int, int], Sent]:
        """Send records in order; return them by (partition, offset)."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        return self._produce(producer, records)

    def send_in_transactions(
        self, transactions: Sequence[tuple[Sequence[Sent], bool]]
    ) -> dict[tuple[int, int], Sent]:
        """Send each group in a transaction, which commits or aborts as its flag says.

        Returns:
            The records of committed transactions, by (partition, offset).
        """
        producer = self._transactional_producer()
        committed: dict[tuple[int, int], Sent] = {}
        for records, commits in transactions:
            producer.begin_transaction()
            positions = self._produce(producer, records)
            if commits:
                producer.commit_transaction(_DEADLINE_S)
                committed.update(positions)
            else:
                producer.abort_transaction(_DEADLINE_S)
        return committed

    @contextmanager
    def open_transaction(self, records: Sequence[Sent]) -> Iterator[None]:
        """Send records in a transaction that is open in the block, then aborts."""
        producer = self._transactional_producer()
        producer.begin_transaction()
        self._produce(producer, records)
        yield
        producer.abort_transaction(_DEADLINE_S)

    def _transactional_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"test-{self.name}",
                "transaction.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(_DEADLINE_S)
        return producer

    def _produce(
        self, producer: Producer, records: Sequence[Sent]
    ) -> dict[tuple[int, int], Sent]:
        positions: dict[tuple[int, int], Sent] = {}

        def note(record: Sent) -> Callable[[KafkaError | None, Message], None]:
            def delivered(error: KafkaError | None, message: Message) -> None:
                assert error is None, error
                place = message.partition(), message.offset()
                assert place[0] is not None
                assert place[1] is not None
                positions[place[0], place[1]] = record

            return delivered

        for record in records:
            producer.produce(
                self.name,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=[*record.headers],
                timestamp=record.timestamp_ms,
                on_delivery=note(record),
            )
            producer.poll(0)
        producer.flush(_DEADLINE_S)
        assert len(positions) == len(records), "the broker did not take every record"
        return positions

    def _insist(self, call: Callable[[], _T], *, while_: int) -> _T:
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            try:
                return call()
            except KafkaException as error:
                if error.args[0].code() != while_ or time.monotonic() > deadline:
                    raise


def read_topic(bootstrap: str, name: str) -> list[Message]:
    """Read what consumers of committed messages see now, partition by partition.

    Nothing while the topic does not exist.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        known = consumer.list_topics(timeout=_DEADLINE_S).topics.get(name)
        if known is None:
            return []
        consumer.assign([KafkaTopicPartition(name, p, 0) for p in known.partitions])
        return sorted(_read_to_the_end(consumer, len(known.partitions)), key=_place)
    finally:
        consumer.close()


def _read_to_the_end(consumer: Consumer, partitions: int) -> Iterator[Message]:
    deadline = time.monotonic() + _DEADLINE_S
    while partitions:
        assert time.monotonic() < deadline, "the broker does not come to an end"
        polled = consumer.poll(1.0)
        error = None if polled is None else polled.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            partitions -= 1
        elif polled is not None:
            yield polled


def _place(message: Message) -> tuple[int, int]:
    return message.partition() or 0, message.offset() or 0
