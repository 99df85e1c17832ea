"""Sends the workload in Kafka transactions, and finds out the outcome of each.

If the broker dies in a commit, the outcome is open. The sender then takes over the
transactional id again, which makes the broker finish the transaction one way or the
other, and reads the outcome from the topic itself.

A fault must hit a driver at work, so there must be records to read when it comes, and
the stream must last until the last fault. So the senders wait at a mark, which the
nemesis moves forward (``Gate``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tallyweir.services.dev.chaos.sent_log import Outcome, Place, SentLog
from tallyweir.services.dev.chaos.workload import Transaction
from tallyweir.sinks.protocol.errors import RetryableError


class Gate:
    """A mark in the stream of committed records; it only moves forward."""

    def __init__(self) -> None:
        self._open_until = 0
        self._is_closed = False
        self._moved = threading.Condition()

    @property
    def open_until(self) -> int:
        """The mark."""
        return self._open_until

    def open_to(self, records: int) -> None:
        """Move the mark forward, unless it is already further on."""
        with self._moved:
            self._open_until = max(self._open_until, records)
            self._moved.notify_all()

    def close(self) -> None:
        """Release all senders, and let them send nothing more."""
        with self._moved:
            self._is_closed = True
            self._moved.notify_all()

    def await_turn(self, before: int) -> bool:
        """Wait until the mark allows to send what follows so many records.

        Returns:
            False if nothing more is to be sent.
        """
        with self._moved:
            self._moved.wait_for(lambda: self._is_closed or before < self._open_until)
            return not self._is_closed


_LOG = logging.getLogger(__name__)
_SILENT = logging.getLogger("tallyweir.kafka.silent")

#: Longer than a broker needs to come back after SIGKILL.
_PATIENCE_S = 180.0
_CALL_TIMEOUT_S = 10.0
_RETRY_PAUSE_S = 0.5


class SharedTransactions:
    """The transactions of a workload, which several senders share."""

    def __init__(self, transactions: Iterator[Transaction]) -> None:
        self._transactions = transactions
        self._lock = threading.Lock()

    def take(self) -> Transaction | None:
        """Return the next transaction, or None after the last."""
        with self._lock:
            return next(self._transactions, None)


class Sender(threading.Thread):
    """One producer with its own transactional id.

    Args:
        name: Its transactional id.
        bootstrap: The address of the broker.
        topic: The topic that the records go to.
        transactions: Transactions that it shares with other senders.
        gate: Limits how far it may go.
        log: Records what it did.
    """

    def __init__(  # noqa: PLR0913 (keyword-only; each is another part of the world)
        self,
        *,
        name: str,
        bootstrap: str,
        topic: str,
        transactions: SharedTransactions,
        gate: Gate,
        log: SentLog,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._brokers = bootstrap
        self._topic = topic
        self._transactions = transactions
        self._gate = gate
        self._log = log
        self._stopping = threading.Event()
        self._producer: Producer | None = None
        self.failure: Exception | None = None

    def stop(self) -> None:
        """Send nothing more."""
        self._stopping.set()

    def run(self) -> None:
        """Send until there is nothing left, or until stopped."""
        try:
            while (transaction := self._transactions.take()) is not None:
                if not self._gate.await_turn(transaction.before):
                    return
                while not self._send(transaction):
                    if self._stopping.is_set():
                        return
        except Exception as error:  # noqa: BLE001 (the waiting thread raises it)
            self.failure = error

    def _send(self, transaction: Transaction) -> bool:
        """Try a transaction; tell whether it had the wanted outcome."""
        number = self._log.begin()
        places: dict[int, Place] = {}
        wanted = Outcome.COMMITTED if transaction.commits else Outcome.ABORTED
        may_be_committed = False
        try:
            producer = self._producer = self._producer or self._new_producer()
            producer.begin_transaction()
            self._produce(producer, transaction, places)
            self._log.write(number, transaction.records, places)
            if not transaction.commits or len(places) < len(transaction.records):
                self._insist(lambda: producer.abort_transaction(_CALL_TIMEOUT_S))
                outcome = Outcome.ABORTED
            else:
                may_be_committed = True
                self._insist(lambda: producer.commit_transaction(_CALL_TIMEOUT_S))
                outcome = Outcome.COMMITTED
        except KafkaException as error:
            _LOG.debug("transaction %d: %s", number, error)
            self._producer = None
            self._producer = self._new_producer()
            outcome = Outcome.ABORTED
            if may_be_committed and self._is_visible(places):
                outcome = Outcome.COMMITTED
        self._log.decide(number, outcome)
        return outcome is wanted

    def _produce(
        self, producer: Producer, transaction: Transaction, places: dict[int, Place]
    ) -> None:
        def note(index: int) -> Callable[[KafkaError | None, Message], None]:
            def report(error: KafkaError | None, message: Message) -> None:
                partition, offset = message.partition(), message.offset()
                if error is None and partition is not None and offset is not None:
                    places[index] = (partition, offset)

            return report

        for index, record in enumerate(transaction.records):
            producer.produce(
                self._topic,
                key=record.event.event_id.encode(),
                value=record.payload,
                partition=record.partition,
                on_delivery=note(index),
            )
            producer.poll(0)
        deadline = time.monotonic() + _PATIENCE_S
        while len(producer) and time.monotonic() < deadline:
            if self._stopping.is_set():
                return
            producer.flush(1.0)

    def _new_producer(self) -> Producer:
        """Take over the transactional id; the broker then ends its open transaction."""
        producer = Producer(
            {
                "bootstrap.servers": self._brokers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 5,
            },
            logger=_SILENT,
        )
        self._insist(lambda: producer.init_transactions(_CALL_TIMEOUT_S))
        return producer

    def _insist(self, call: Callable[[], object]) -> None:
        """Repeat a call as long as the broker asks for it."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                call()
            except KafkaException as error:
                is_final = not error.args[0].retriable()
                if is_final or time.monotonic() > deadline or self._stopping.is_set():
                    raise
                self._stopping.wait(_RETRY_PAUSE_S)
            else:
                return

    def _is_visible(self, places: dict[int, Place]) -> bool:
        """Tell whether the record at one of the places can be read as committed."""
        partition, offset = next(iter(places.values()))
        consumer = Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": f"{self.name}-probe",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
            },
            logger=_SILENT,
        )
        try:
            consumer.assign([TopicPartition(self._topic, partition, offset)])
            deadline = time.monotonic() + _PATIENCE_S
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    return message.offset() == offset
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (public)
                    return False
        finally:
            consumer.close()
        raise RetryableError(
            "KAFKA_UNREACHABLE",
            saw=f"Kafka at {self._brokers} shows no end of partition {partition}.",
            why="The sender cannot know whether a transaction was committed.",
            fix="Read the broker's log.",
        )
