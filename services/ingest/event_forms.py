"""Read a request's body as events that are ready for Kafka, or say why not.

JSON is parsed as strictly as its standard, within limits of depth and size. Python's
parser takes the last of two equal keys, turns large numbers into infinity, accepts half
a surrogate pair, and follows any nesting. In each of these cases two programs could
read one text differently, so this module refuses it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import NoReturn

from tallyweir.services.ingest.cloud_events import (
    Attributes,
    attributes_of_headers,
    take_structured,
)
from tallyweir.services.ingest.request import (
    CLOUD_EVENT,
    CLOUD_EVENT_BATCH,
    JSON,
    RequestHead,
    unknown_media_type,
)
from tallyweir.services.ingest.scoped_ids import NamedEvent, name_event
from tallyweir.services.ingest.served_topics import ServedTopic
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


DEPTH_MAX = 32
ELEMENTS_MAX = 50_000
DIGITS_MAX = 40

Json = dict[str, object] | list[object] | str | int | float | bool | None


def parse_json(body: bytes) -> Json:
    """Read a JSON text.

    Raises:
        RefusedError: ``JSON_MALFORMED`` or ``JSON_TOO_COMPLEX``, whatever the bytes.
    """
    try:
        value: Json = _DECODER.decode(body.decode("utf-8"))
    except RecursionError as exc:
        raise _too_complex(f"It is nested deeper than {DEPTH_MAX}.") from exc
    except ValueError as exc:
        # The parser's message names a place and quotes at most a few characters.
        raise _malformed(f"The body is not JSON: {exc}.") from exc
    # The numbers of brackets and commas are upper bounds of depth and elements, and
    # only an escape can make a text that ``_check_text`` refuses. So most bodies need
    # no check of each value.
    brackets = body.count(b"[") + body.count(b"{")
    if (
        brackets > DEPTH_MAX
        or brackets + body.count(b",") >= ELEMENTS_MAX
        or b"\\u" in body
    ):
        _check_values(value)
    return value


def _check_values(value: Json) -> None:
    """Check depth, number of elements and every text, without recursion."""
    elements = 0
    waiting: list[tuple[object, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        elements += 1
        if elements > ELEMENTS_MAX:
            raise _too_complex(f"It has more than {ELEMENTS_MAX:,} values.")
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, dict | list):
            if depth > DEPTH_MAX:
                raise _too_complex(f"It is nested deeper than {DEPTH_MAX}.")
            if isinstance(item, dict):
                for name in item:
                    _check_text(name)
                waiting.extend((inner, depth + 1) for inner in item.values())
            else:
                waiting.extend((inner, depth + 1) for inner in item)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _malformed("A text holds the character NUL, which Postgres refuses.")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise _malformed("A text holds half of a surrogate pair.") from exc


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _malformed("An object has the same key twice.")
    return members


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS_MAX:
        raise _malformed(f"A number has more than {DIGITS_MAX} digits.")
    return int(digits)


def _real(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _malformed("A number is larger than any that a double holds.")
    return number


def _no_number(name: str) -> NoReturn:
    raise _malformed(f"{name} is not a number in JSON.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_whole,
    parse_float=_real,
    parse_constant=_no_number,
)


def _malformed(saw: str) -> RefusedError:
    return RefusedError(
        "JSON_MALFORMED",
        status=400,
        saw=saw,
        why="Two programs could read it differently.",
        fix="Send JSON that follows RFC 8259, in UTF-8, with unique keys.",
    )


def _too_complex(saw: str) -> RefusedError:
    return RefusedError(
        "JSON_TOO_COMPLEX",
        status=400,
        saw=saw,
        why="No event of a contract looks like that.",
        fix="Send fewer events at once, or simpler ones.",
    )
