"""``POST /v1/events/{topic}``: from a request's headers to its answer.

Every event takes this path, so it is plain ASGI: it checks the key before it reads the
body, counts the body as it arrives, and validates nothing twice. The answer says of
each event whether it is accepted, refused, or its state is unknown.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog
from starlette.types import Receive, Scope, Send

from tallyweir.services.ingest.api_keys import KeyFile
from tallyweir.services.ingest.event_forms import ReadEvents, read_events
from tallyweir.services.ingest.kafka_sender import Delivery, KafkaSender
from tallyweir.services.ingest.metrics import ACCEPTED, REFUSED, UNKNOWN, IngestMetrics
from tallyweir.services.ingest.request import (
    ClientGoneError,
    InFlight,
    RequestHead,
    read_body,
)
from tallyweir.services.ingest.scoped_ids import NamedEvent
from tallyweir.services.ingest.served_topics import ServedTopic, require_served
from tallyweir.services.process.hashed_secrets import utc_now
from tallyweir.services.process.http_server import LEFT_BYTES_MAX
from tallyweir.services.process.refusals import RefusedError

EVENTS_PATH = "/v1/events/"


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


ACCEPTED_STATUS = 202
MIXED_STATUS = 207
UNKNOWN_STATUS = 503
RETRY_AFTER_S = 2

_JSON_TYPE = b"application/json"
_PROBLEM_TYPE = b"application/problem+json"
_CHALLENGE = (b"www-authenticate", b'Bearer realm="tallyweir"')

Outcome = Delivery | RefusedError
Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, content type, body and further headers of an answer."""

    status: int
    content_type: bytes
    body: bytes
    headers: Headers = ()

    def closing(self) -> Answer:
        """The same answer, after which the connection closes."""
        return dataclasses.replace(
            self, headers=(*self.headers, (b"connection", b"close"))
        )


def refusal_answer(
    refusal: RefusedError, events: Sequence[dict[str, object]] | None = None
) -> Answer:
    """Answer with a problem; ``events`` lists a batch's events with their outcomes."""
    problem = refusal.as_problem()
    if events is not None:
        problem["events"] = events
    headers: Headers = ()
    if refusal.retry_after_s is not None:
        headers = ((b"retry-after", b"%d" % refusal.retry_after_s),)
    if refusal.code == "UNAUTHENTICATED":
        headers = (*headers, _CHALLENGE)
    if refusal.code == "METHOD_UNKNOWN":
        headers = (*headers, (b"allow", b"POST"))
    body = json.dumps(problem).encode()
    return Answer(refusal.status, _PROBLEM_TYPE, body, headers)


def single_answer(topic: str, event: NamedEvent, delivery: Delivery) -> Answer:
    """Answer a request that holds one event.

    Raises:
        RefusedError: The event is not, or not certainly, in Kafka.
    """
    problem = delivery_problem(delivery)
    if problem is not None:
        raise problem
    shown = _accepted(topic, event, delivery)
    return Answer(ACCEPTED_STATUS, _JSON_TYPE, json.dumps({"events": [shown]}).encode())


def batch_answer(
    topic: str,
    events: Sequence[NamedEvent | RefusedError],
    outcomes: Sequence[Outcome],
) -> Answer:
    """Answer a batch.

    The status is 202 if all events are in Kafka, 503 if the outcome of one is unknown,
    422 if all are refused, otherwise 207. A producer that looks only at the status
    repeats only what it may repeat, and never takes a loss for full success.
    """
    shown = []
    problems = []
    for event, outcome in zip(events, outcomes, strict=True):
        problem = (
            outcome if isinstance(outcome, RefusedError) else delivery_problem(outcome)
        )
        if problem is not None:
            problems.append(problem)
            shown.append(_refused(problem))
        else:
            assert isinstance(event, NamedEvent), "what was delivered is an event"
            assert isinstance(outcome, Delivery), "what was delivered has a place"
            shown.append(_accepted(topic, event, outcome))
    for problem in problems:
        if problem.status == UNKNOWN_STATUS:
            return refusal_answer(problem, shown)
    if len(problems) == len(outcomes):
        return refusal_answer(_all_refused(), shown)
    status = MIXED_STATUS if problems else ACCEPTED_STATUS
    return Answer(status, _JSON_TYPE, json.dumps({"events": shown}).encode())


def delivery_problem(delivery: Delivery) -> RefusedError | None:
    """Say what went wrong between the service and Kafka, or None."""
    if delivery.error is None:
        return None
    if delivery.is_unknown:
        return RefusedError(
            "OUTCOME_UNKNOWN",
            status=UNKNOWN_STATUS,
            saw=f"The broker did not confirm the event ({delivery.error}).",
            why="It may or may not be in Kafka.",
            fix="Send it again with the same ID: a repeat does no harm.",
            retry_after_s=RETRY_AFTER_S,
        )
    return RefusedError(
        "EVENT_NOT_TAKEN",
        status=422,
        saw=f"The broker refused the event ({delivery.error}).",
        why="It is larger than the topic allows, or breaks a rule of the broker.",
        fix="Send a smaller event.",
    )


def _accepted(topic: str, event: NamedEvent, delivery: Delivery) -> dict[str, object]:
    return {
        "status": ACCEPTED_STATUS,
        "id": event.event_id,
        "topic": topic,
        "partition": delivery.partition,
        "offset": delivery.offset,
    }


def _refused(refusal: RefusedError) -> dict[str, object]:
    return {
        "status": refusal.status,
        "code": refusal.code,
        "saw": refusal.saw,
        "why": refusal.why,
        "fix": refusal.fix,
    }


def _all_refused() -> RefusedError:
    return RefusedError(
        "BATCH_REFUSED",
        status=422,
        saw="The service accepted no event of the batch.",
        why="The list of events gives the reason for each.",
        fix="Correct the events.",
    )
