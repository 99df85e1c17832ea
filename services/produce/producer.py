"""A producer that reports a message as delivered only if the broker has it.

It is idempotent, so that a retry inside the client neither duplicates nor reorders
messages, and it waits for all in-sync replicas. ``send`` only accepts a message; the
broker's delivery report tells its outcome. ``flush`` raises unless every report is
good.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report

from tallyweir.services.kafka.clients import SILENT_LOG, producer_settings
from tallyweir.sinks.protocol.errors import RetryableError

QUEUE_MESSAGES_MAX = 100_000
DELIVERY_TIMEOUT_S = 60.0

_BY_KEY = -1
_MESSAGE_BYTES_MAX = 100_000_000
_POLL_S = 0.1
_POLL_EVERY_MESSAGES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What the broker reported about one message.

    Attributes:
        topic: The topic that it was sent to.
        partition: The message's partition; -1 if it was not delivered.
        offset: The message's offset; -1 if it was not delivered.
        error: Why it was not delivered; None if it was.
    """

    topic: str
    partition: int
    offset: int
    error: str | None

    @property
    def is_delivered(self) -> bool:
        """Whether all in-sync replicas have the message."""
        return self.error is None


class EventProducer:
    """Sends messages to Kafka and counts the reports.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        delivery_timeout_s: A message fails after this long without an acknowledgement.
        queue_messages_max: How many messages may wait for a report before ``send``
            blocks.
    """

    # Invariant: every message sent is delivered, failed or waiting.

    def __init__(
        self,
        bootstrap: str,
        *,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        queue_messages_max: int = QUEUE_MESSAGES_MAX,
    ) -> None:
        self.sent = 0
        self.delivered = 0
        self._failures: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._delivery_timeout_s = delivery_timeout_s
        self._producer = Producer(
            {
                **producer_settings(bootstrap, linger_ms=20),
                "delivery.timeout.ms": int(delivery_timeout_s * 1_000),
                "queue.buffering.max.messages": queue_messages_max,
                # The client sets no limit: the broker decides what a topic accepts.
                "message.max.bytes": _MESSAGE_BYTES_MAX,
            },
            logger=SILENT_LOG,
        )

    @property
    def failed(self) -> int:
        """The number of messages that the broker does not have, or may not have."""
        return self._failures.total()

    @property
    def waiting(self) -> int:
        """The number of messages without a report so far."""
        return self.sent - self.delivered - self.failed

    def send(  # noqa: PLR0913 (keyword-only; a message has these parts)
        self,
        topic: str,
        *,
        key: bytes | None,
        payload: bytes | None,
        partition: int | None = None,
        headers: list[tuple[str, str | bytes | None]] | None = None,
        on_report: Callable[[Delivery], None] | None = None,
    ) -> None:
        """Accept one message; block while the queue is full.

        Args:
            topic: An existing topic.
            key: Decides the partition unless ``partition`` is given.
            payload: The message's value; None is a tombstone.
            partition: The partition to send to, whatever the key is.
            headers: The message's headers.
            on_report: Called once with the outcome, from a later ``send`` or
                ``flush``.

        Raises:
            RetryableError: The queue stayed full for the delivery timeout, or the
                client failed permanently.

        Crash:
            A message without a report may or may not be in Kafka; send it again
            with the same ID.
        """
        if self.sent % _POLL_EVERY_MESSAGES == 0:
            self._producer.poll(0)
        report = self._count if on_report is None else self._count_and_tell(on_report)
        deadline = None
        while True:
            try:
                self._producer.produce(
                    topic,
                    key=key,
                    value=payload,
                    partition=_BY_KEY if partition is None else partition,
                    headers=headers,
                    on_delivery=report,
                )
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + self._delivery_timeout_s
                if now > deadline:
                    raise self._undelivered() from None
                self._producer.poll(_POLL_S)
            except KafkaException as exc:
                self._failures[_reason(exc.args[0])] += 1
                self.sent += 1
                raise self._undelivered() from exc
            else:
                self.sent += 1
                return

    def flush(self) -> int:
        """Wait until every message has its report; return how many were delivered.

        Raises:
            RetryableError: Some were not delivered; the error counts them by reason.
        """
        # The client itself reports a failure at the delivery timeout; the extra seconds
        # let that report arrive.
        deadline = time.monotonic() + self._delivery_timeout_s + 5.0
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.flush(_POLL_S)
        self._producer.poll(0)
        if self.failed or self.waiting:
            raise self._undelivered()
        return self.delivered

    def _count(self, error: KafkaError | None, report: Report) -> None:
        del report
        if error is None:
            self.delivered += 1
        else:
            self._failures[_reason(error)] += 1

    def _count_and_tell(
        self, on_report: Callable[[Delivery], None]
    ) -> Callable[[KafkaError | None, Report], None]:
        def count_and_tell(error: KafkaError | None, report: Report) -> None:
            self._count(error, report)
            delivered = error is None
            on_report(
                Delivery(
                    topic=str(report.topic()),
                    partition=int(report.partition() or 0) if delivered else -1,
                    offset=int(report.offset() or 0) if delivered else -1,
                    error=None if error is None else _reason(error),
                )
            )

        return count_and_tell

    def _undelivered(self) -> RetryableError:
        reasons = [f"{count:,} {reason}" for reason, count in self._failures.items()]
        if self.waiting:
            reasons.append(f"{self.waiting:,} without an answer")
        return RetryableError(
            "UNDELIVERED",
            saw=f"Of {self.sent:,} messages to {self._bootstrap}, "
            f"{self.delivered:,} were delivered: {', '.join(reasons)}.",
            why="The others may or may not be in Kafka.",
            fix="Check that the broker runs, then send the same events again: with "
            "the same IDs, repeats do no harm.",
        )


def _reason(error: KafkaError) -> str:
    return f"{error.name()} ({error.str()})"
