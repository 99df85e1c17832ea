"""``POST /v1/events/{topic}``: from a request's headers to its answer.

Every event takes this path, so it is plain ASGI: it checks the key before it reads the
body, counts the body as it arrives, and validates nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

import structlog

from tallyweir.services.ingest.answers import (
    Answer,
    Outcome,
    batch_answer,
    refusal_answer,
    single_answer,
)
from tallyweir.services.ingest.event_forms import ReadEvents, read_events
from tallyweir.services.ingest.kafka_sender import Delivery, KafkaSender
from tallyweir.services.ingest.key_file import KeyFile
from tallyweir.services.ingest.metrics import ACCEPTED, REFUSED, UNKNOWN, IngestMetrics
from tallyweir.services.ingest.request_body import (
    ClientGoneError,
    InFlight,
    Receive,
    read_body,
)
from tallyweir.services.ingest.request_head import RequestHead
from tallyweir.services.ingest.scoped_ids import NamedEvent
from tallyweir.services.ingest.served_topics import ServedTopic, require_served
from tallyweir.services.process.hashed_secrets import utc_now
from tallyweir.services.process.http_server import LEFT_BYTES_MAX
from tallyweir.services.process.refusals import RefusedError

EVENTS_PATH = "/v1/events/"

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class EventEndpoint:
    """Answers requests for events.

    Args:
        served: The served topics by name.
        keys: The keys of the producers that may send.
        sender: Sends the events to Kafka.
        metrics: Counts the outcomes.
    """

    def __init__(
        self,
        *,
        served: Mapping[str, ServedTopic],
        keys: KeyFile,
        sender: KafkaSender,
        metrics: IngestMetrics,
    ) -> None:
        self.in_flight = InFlight()
        self._served = served
        self._keys = keys
        self._sender = sender
        self._metrics = metrics
        self._log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; no request makes this method raise."""
        began = time.monotonic()
        head = RequestHead.read(scope["headers"])
        try:
            answer = await self._answer(scope, head, receive)
        except ClientGoneError:
            return
        except RefusedError as refusal:
            self._metrics.refusals.labels(refusal.code).inc()
            answer = refusal_answer(refusal)
            if not _is_worth_reading(head):
                answer = answer.closing()
        except Exception as error:  # noqa: BLE001 - the outermost loop of a request
            # The error's text could hold a part of the event.
            self._log.error("request failed", error=type(error).__name__)
            answer = refusal_answer(_internal_error()).closing()
        await send_answer(send, answer)
        self._metrics.count_request(answer.status, time.monotonic() - began)

    async def _answer(
        self, scope: Scope, head: RequestHead, receive: Receive
    ) -> Answer:
        """Accept one request's events and wait for the broker's report on each.

        Raises:
            RefusedError: Nothing of the request is in Kafka. With the code
                ``OUTCOME_UNKNOWN``, its one event may be.
            ClientGoneError: Nothing of the request is in Kafka.

        Crash:
            Before the answer, any of the events may be in Kafka; the producer gets no
            answer and repeats. After the answer, all accepted events are in Kafka.
        """
        if scope["method"] != "POST":
            raise _method_unknown()
        key = self._keys.ring.authenticate(head.authorization, utc_now())
        name = scope["path"].removeprefix(EVENTS_PATH)
        topic = require_served(self._served, key.topics, name)
        media_type = head.media_type()
        declared = head.content_length
        with self.in_flight.request(key.producer) as take:
            body = await read_body(receive, declared=declared, take=take)
            read = read_events(topic, key.id_prefix, head, media_type, body)
            outcomes = await self._deliver(key.producer, topic, read)
        if read.is_batch:
            return batch_answer(topic.name, read.events, outcomes)
        (event,), (outcome,) = read.events, outcomes
        assert isinstance(event, NamedEvent), "a single event's refusal is raised"
        assert isinstance(outcome, Delivery), "as above"
        return single_answer(topic.name, event, outcome)

    async def _deliver(
        self, producer: str, topic: ServedTopic, read: ReadEvents
    ) -> list[Outcome]:
        good = [event for event in read.events if isinstance(event, NamedEvent)]
        if good:
            self.in_flight.events.take(producer, len(good))
            try:
                deliveries = iter(await self._sender.send(topic.name, good))
            finally:
                self.in_flight.events.give_back(producer, len(good))
        outcomes = [
            next(deliveries) if isinstance(event, NamedEvent) else event
            for event in read.events
        ]
        self._count(topic.name, outcomes, is_batch=read.is_batch)
        return outcomes

    def _count(
        self, topic: str, outcomes: Sequence[Outcome], *, is_batch: bool
    ) -> None:
        unknown = [
            str(outcome.error)
            for outcome in outcomes
            if isinstance(outcome, Delivery) and outcome.is_unknown
        ]
        accepted = sum(
            isinstance(outcome, Delivery) and outcome.error is None
            for outcome in outcomes
        )
        refused = len(outcomes) - len(unknown) - accepted
        counts = ((ACCEPTED, accepted), (REFUSED, refused), (UNKNOWN, len(unknown)))
        for outcome_name, count in counts:
            if count:
                self._metrics.count_events(topic, outcome_name, count)
        if is_batch:
            for outcome in outcomes:
                if isinstance(outcome, RefusedError):
                    self._metrics.refusals.labels(outcome.code).inc()
        if unknown:
            self._log.warning(
                "outcome unknown",
                topic=topic,
                events=len(unknown),
                errors=sorted(set(unknown)),
            )


async def send_answer(send: Send, answer: Answer) -> None:
    """Send a whole answer."""
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [
                (b"content-type", answer.content_type),
                (b"content-length", b"%d" % len(answer.body)),
                *answer.headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": answer.body})


def _is_worth_reading(head: RequestHead) -> bool:
    declared = head.content_length
    return declared is not None and declared <= LEFT_BYTES_MAX


def _method_unknown() -> RefusedError:
    return RefusedError(
        "METHOD_UNKNOWN",
        status=405,
        saw="The method is not POST.",
        why="This path only accepts events.",
        fix="Use POST.",
    )


def _internal_error() -> RefusedError:
    return RefusedError(
        "INTERNAL_ERROR",
        status=500,
        saw="The service failed.",
        why="This is a defect; the event may or may not be in Kafka.",
        fix="Send it again with the same ID, and report it.",
    )
