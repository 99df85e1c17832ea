"""Send messages to Kafka from an event loop, and bring back the broker's reports.

The client's own threads send. The loop polls for the reports, on a short timer while it
awaits any. A separate thread for the reports was slower by a sixth: the client takes
Python's lock for each report, and would compete with the loop for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tallyweir.services.ingest.scoped_ids import NamedEvent
from tallyweir.services.kafka.clients import SILENT_LOG, producer_settings

#: An event without an acknowledgement for this long has an unknown outcome.
DELIVERY_TIMEOUT_S = 10.0
#: How long messages wait for others to share a request to the broker.
LINGER_MS = 2

_POLL_S = 0.001
#: Polling also delivers errors of the client as a whole, even if no report is due.
_IDLE_POLL_S = 0.1
# Before any other error, the broker may have accepted an earlier try.
_SURELY_REFUSED = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one message.

    Attributes:
        partition: The message's partition; -1 unless it was delivered.
        offset: The message's offset; -1 unless it was delivered.
        error: The client's name for the error; None for a delivered message.
        is_unknown: Whether the message may be in Kafka in spite of the error.
    """

    partition: int
    offset: int
    error: str | None = None
    is_unknown: bool = False


class KafkaSender:
    """An idempotent producer for one event loop.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        loop: The loop that calls ``send`` and awaits its answers.
        on_fatal: Called on the loop when the client can never send again.
        delivery_timeout_s: See ``DELIVERY_TIMEOUT_S``.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        loop: asyncio.AbstractEventLoop,
        on_fatal: Callable[[str], None],
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
    ) -> None:
        self.delivery_timeout_s = delivery_timeout_s
        self._loop = loop
        self._on_fatal = on_fatal
        self._producer = Producer(
            {
                **producer_settings(bootstrap, linger_ms=LINGER_MS),
                "delivery.timeout.ms": int(delivery_timeout_s * 1_000),
                "error_cb": self._notice_error,
            },
            logger=SILENT_LOG,
        )
        self._is_idle = True
        self._is_closed = False
        self._timer = loop.call_later(_IDLE_POLL_S, self._poll)

    def send(
        self, topic: str, events: Sequence[NamedEvent]
    ) -> asyncio.Future[list[Delivery]]:
        """Accept messages; the answer has one delivery for each, in order.

        The answer arrives by the end of the delivery timeout, and is never an
        exception.

        Crash:
            Each message may or may not be in Kafka until its delivery says that it is.
        """
        batch = _Batch(self._loop.create_future(), len(events))
        for number, event in enumerate(events):
            try:
                self._producer.produce(
                    topic,
                    value=event.payload,
                    key=event.key,
                    headers=event.headers,
                    on_delivery=_Report(self, batch, number),
                )
            except BufferError:
                # The client did not accept the message, so the producer may repeat it.
                batch.settle(number, Delivery(-1, -1, "QUEUE_FULL", is_unknown=True))
            except KafkaException as exc:
                batch.settle(number, _failure(exc.args[0]))
        if self._is_idle:
            self._schedule(is_idle=False)
        return batch.answer

    def knows_topics(self, topics: Sequence[str], *, timeout_s: float) -> bool:
        """Whether the broker has the topics; blocks until it answers or time is up."""
        try:
            found = self._producer.list_topics(timeout=timeout_s).topics
        except KafkaException:
            return False
        return all(name in found and found[name].error is None for name in topics)

    def stop_polling(self) -> None:
        """Stop polling for reports, once all awaited reports have arrived."""
        self._is_closed = True
        self._timer.cancel()

    def flush(self) -> int:
        """Wait until every message is settled; return how many are not.

        This blocks. Call it after ``stop_polling``, from any thread: it passes no
        report on.
        """
        assert self._is_closed, "a report would reach the loop from another thread"
        return self._producer.flush(self.delivery_timeout_s + 1.0)

    def settle(self, batch: _Batch, number: int, delivery: Delivery) -> None:
        """Pass a report on, unless polling has stopped."""
        if not self._is_closed:
            batch.settle(number, delivery)

    def _poll(self) -> None:
        try:
            self._producer.poll(0)
        finally:
            self._schedule(is_idle=len(self._producer) == 0)

    def _schedule(self, *, is_idle: bool) -> None:
        self._timer.cancel()
        self._is_idle = is_idle
        self._timer = self._loop.call_later(
            _IDLE_POLL_S if is_idle else _POLL_S, self._poll
        )

    def _notice_error(self, error: KafkaError) -> None:
        if error.fatal() and not self._is_closed:
            self._on_fatal(error.name())


class _Batch:
    """The messages of one request."""

    __slots__ = ("_deliveries", "_missing", "answer")

    def __init__(self, answer: asyncio.Future[list[Delivery]], size: int) -> None:
        self.answer = answer
        self._missing = size
        self._deliveries: list[Delivery | None] = [None] * size

    def settle(self, number: int, delivery: Delivery) -> None:
        """Note one message's delivery; the last one completes the answer."""
        self._deliveries[number] = delivery
        self._missing -= 1
        # The waiting request may have been cancelled, and its future with it.
        if self._missing == 0 and not self.answer.done():
            self.answer.set_result([one for one in self._deliveries if one])


class _Report:
    """The client calls it with the broker's report on one message."""

    __slots__ = ("_batch", "_number", "_sender")

    def __init__(self, sender: KafkaSender, batch: _Batch, number: int) -> None:
        self._sender = sender
        self._batch = batch
        self._number = number

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            delivery = _failure(error)
        else:
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "a delivered message has a place"
            assert offset is not None, "a delivered message has a place"
            delivery = Delivery(partition, offset)
        self._sender.settle(self._batch, self._number, delivery)


def _failure(error: KafkaError) -> Delivery:
    is_unknown = error.code() not in _SURELY_REFUSED
    return Delivery(-1, -1, error.name(), is_unknown=is_unknown)
