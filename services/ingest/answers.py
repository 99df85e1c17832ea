"""Outcomes as HTTP answers: events are accepted, refused, or their state is unknown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

from tallyweir.services.ingest.kafka_sender import Delivery
from tallyweir.services.ingest.scoped_ids import NamedEvent
from tallyweir.services.process.refusals import RefusedError

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
