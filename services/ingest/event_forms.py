"""Read a request's body as events that are ready for Kafka, or say why not."""

from __future__ import annotations

from dataclasses import dataclass

from tallyweir.services.ingest.cloud_events import (
    Attributes,
    attributes_of_headers,
    take_structured,
)
from tallyweir.services.ingest.request_head import (
    CLOUD_EVENT,
    CLOUD_EVENT_BATCH,
    JSON,
    RequestHead,
    unknown_media_type,
)
from tallyweir.services.ingest.scoped_ids import NamedEvent, name_event
from tallyweir.services.ingest.served_topics import ServedTopic
from tallyweir.services.ingest.strict_json import parse_json
from tallyweir.services.process.refusals import RefusedError

EVENTS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEvents:
    """What a body holds.

    Attributes:
        events: The events in the body's order; a refused event is its refusal.
        is_batch: Whether the body's form allows several events.
    """

    events: list[NamedEvent | RefusedError]
    is_batch: bool


def read_events(
    topic: ServedTopic, prefix: str, head: RequestHead, media_type: str, body: bytes
) -> ReadEvents:
    """Read the events of a body, each on its own.

    Args:
        topic: The topic that the events are for.
        prefix: The prefix of the producer's event IDs.
        head: The request's head.
        media_type: As ``RequestHead.media_type`` returns it.
        body: The request's body.

    Raises:
        RefusedError: The body as a whole cannot be read; or it holds a single event,
            and that event is refused.
    """
    key = head.idempotency_key()
    if media_type not in {JSON, CLOUD_EVENT, CLOUD_EVENT_BATCH}:
        if media_type != topic.contract.format.media_type:
            raise unknown_media_type(topic.contract.format.media_type)
        attributes = _binary_mode(head)
        record = topic.read_body(body)
        return _one(
            name_event(
                topic, prefix, record, attributes=attributes, idempotency_key=key
            )
        )
    value = parse_json(body)
    if media_type == CLOUD_EVENT:
        return _one(_structured(topic, prefix, value, key))
    if media_type == CLOUD_EVENT_BATCH:
        items = _items(value, key)
        return _many([_try_structured(topic, prefix, item) for item in items])
    attributes = _binary_mode(head)
    if not isinstance(value, list):
        return _one(_plain(topic, prefix, value, attributes, key))
    if attributes is not None:
        raise RefusedError(
            "CLOUDEVENT_MALFORMED",
            status=400,
            saw="The ce- headers describe one event, and the body holds an array.",
            why="The events would share one ID.",
            fix="Send several CloudEvents as application/cloudevents-batch+json.",
        )
    return _many([_try_plain(topic, prefix, item) for item in _items(value, key)])


def _one(event: NamedEvent) -> ReadEvents:
    return ReadEvents(events=[event], is_batch=False)


def _many(events: list[NamedEvent | RefusedError]) -> ReadEvents:
    return ReadEvents(events=events, is_batch=True)


def _binary_mode(head: RequestHead) -> Attributes | None:
    return attributes_of_headers(head.cloud_event) if head.cloud_event else None


def _items(value: object, key: str | None) -> list[object]:
    if not isinstance(value, list) or not value:
        raise RefusedError(
            "BATCH_MALFORMED",
            status=400,
            saw="The body is not an array of events.",
            why="A batch is an array of one or more events.",
            fix="Send an array, or send a single event with the content type for one "
            "event.",
        )
    if len(value) > EVENTS_MAX:
        raise RefusedError(
            "BATCH_TOO_LARGE",
            status=413,
            saw=f"The array holds {len(value):,} events.",
            why=f"At most {EVENTS_MAX:,} fit into one request.",
            fix="Send several requests.",
        )
    if key is not None:
        raise RefusedError(
            "ID_MISMATCH",
            status=422,
            saw="The request has one Idempotency-Key for an array of events.",
            why="The events would share one ID.",
            fix="Give each event its ID, or send them one by one.",
        )
    return value


def _plain(
    topic: ServedTopic,
    prefix: str,
    value: object,
    attributes: Attributes | None,
    key: str | None,
) -> NamedEvent:
    record = topic.read_json(value)
    return name_event(topic, prefix, record, attributes=attributes, idempotency_key=key)


def _structured(
    topic: ServedTopic, prefix: str, value: object, key: str | None
) -> NamedEvent:
    attributes, data = take_structured(value)
    if not isinstance(data, bytes):
        record = topic.read_json(data)
    elif attributes.get("datacontenttype") == topic.contract.format.media_type:
        record = topic.read_body(data)
    else:
        record = topic.read_json(parse_json(data))
    return name_event(topic, prefix, record, attributes=attributes, idempotency_key=key)


def _try_plain(
    topic: ServedTopic, prefix: str, value: object
) -> NamedEvent | RefusedError:
    try:
        return _plain(topic, prefix, value, None, None)
    except RefusedError as refusal:
        return refusal


def _try_structured(
    topic: ServedTopic, prefix: str, value: object
) -> NamedEvent | RefusedError:
    try:
        return _structured(topic, prefix, value, None)
    except RefusedError as refusal:
        return refusal
