"""The producer's ID: required, and inside the scope of the producer that sends it.

The rule: **every ID that a pipeline reads begins with the ID prefix of the producer
that sent it, and no prefix of a topic's producers begins with another's.** So two
producers never name the same event, and no producer can use up another's ID.

If a header holds the ID, the service writes the prefix in front of it: into
``ce_source`` if the pipeline reads ``ce_id`` and ``ce_source``, otherwise into the
header itself. If a field holds the ID, the producer writes the prefix, because the
service does not change fields. It only fills in a text field that is absent, from
``Idempotency-Key``. ``api_keys`` keeps the prefixes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallyweir.schemas.codec import EventRecord
from tallyweir.services.ingest.cloud_events import has_control_characters, kafka_headers
from tallyweir.services.ingest.served_topics import ServedTopic
from tallyweir.services.process.refusals import RefusedError

#: The longest ID that pipelines allow.
ID_BYTES_MAX = 256

#: The source of an event that came without one.
KEY_SOURCE = "idempotency-key"

KafkaHeaders = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEvent:
    """An event that is ready for Kafka.

    Attributes:
        event_id: The ID that the pipeline reads; the answer returns it.
        key: The message's key.
        payload: The message's value.
        headers: The message's headers; None if it has none.
    """

    event_id: str
    key: bytes
    payload: bytes
    headers: KafkaHeaders | None


def name_event(
    topic: ServedTopic,
    prefix: str,
    record: EventRecord,
    *,
    attributes: Mapping[str, object] | None,
    idempotency_key: str | None,
) -> NamedEvent:
    """Find an event's ID, check that the producer owns it, and encode the event.

    Args:
        topic: The topic that the event is for.
        prefix: The prefix of the producer's event IDs.
        record: The event.
        attributes: The attributes of the CloudEvent that held it, if one did.
        idempotency_key: The request's key, if the request holds only this event.

    Raises:
        RefusedError: ``ID_MISSING``, ``ID_MALFORMED``, ``ID_MISMATCH``,
            ``ID_OUT_OF_SCOPE`` or ``RECORD_MISFIT``.
    """
    if topic.id_field_type is not None:
        return _by_field(topic, prefix, record, attributes, idempotency_key)
    return _by_header(topic, prefix, record, attributes, idempotency_key)


def _by_field(
    topic: ServedTopic,
    prefix: str,
    record: EventRecord,
    attributes: Mapping[str, object] | None,
    idempotency_key: str | None,
) -> NamedEvent:
    field = topic.section.event_id
    if record.get(field) is None:
        if idempotency_key is None or topic.id_field_type != "string":
            raise _missing(f"The event lacks the field {field}, which holds its ID.")
        record[field] = prefix + idempotency_key
    payload = topic.encode(record)
    found = record[field]
    if isinstance(found, bytes):
        key = found
        shown = found.decode(errors="replace")
    else:
        shown = str(found)
        key = shown.encode()
    if idempotency_key is not None and shown not in {
        idempotency_key,
        prefix + idempotency_key,
    }:
        raise _mismatch(f"the field {field}")
    _check_id(key, f"The field {field}")
    if not key.startswith(prefix.encode()):
        raise RefusedError(
            "ID_OUT_OF_SCOPE",
            status=403,
            saw=f"The field {field} does not begin with {prefix!r}.",
            why="The prefix keeps other producers from using this producer's IDs.",
            fix=f"Let every ID begin with {prefix!r}, or ask for another prefix.",
        )
    headers = None
    if attributes is not None:
        headers = _scoped_headers(topic, prefix, attributes)
    return NamedEvent(event_id=shown, key=key, payload=payload, headers=headers)


def _by_header(
    topic: ServedTopic,
    prefix: str,
    record: EventRecord,
    attributes: Mapping[str, object] | None,
    idempotency_key: str | None,
) -> NamedEvent:
    header = topic.section.id_header
    assert header is not None, "the ID is in a field or in a header"
    payload = topic.encode(record)
    if header != "ce_id":
        if idempotency_key is None:
            raise _missing("The request has no header Idempotency-Key.")
        event_id = prefix + idempotency_key
        _check_id(event_id.encode(), "The ID with the producer's prefix")
        headers = (
            [] if attributes is None else _scoped_headers(topic, prefix, attributes)
        )
        # The pipeline reads the last header of this name.
        headers.append((header, event_id.encode()))
        return NamedEvent(
            event_id=event_id, key=event_id.encode(), payload=payload, headers=headers
        )
    if attributes is None:
        if idempotency_key is None:
            raise _missing(
                "The request has neither a CloudEvent nor an Idempotency-Key."
            )
        attributes = {
            "specversion": "1.0",
            "id": idempotency_key,
            "source": KEY_SOURCE,
            "type": topic.contract.reference,
        }
    event_id = str(attributes["id"])
    if idempotency_key not in {None, event_id}:
        raise _mismatch("the CloudEvent's id")
    _check_id(event_id.encode(), "The ID")
    return NamedEvent(
        event_id=event_id,
        key=event_id.encode(),
        payload=payload,
        headers=_scoped_headers(topic, prefix, attributes),
    )


def _scoped_headers(
    topic: ServedTopic, prefix: str, attributes: Mapping[str, object]
) -> KafkaHeaders:
    source = f"{prefix}{attributes['source']}"
    _check_id(source.encode(), "The source with the producer's prefix")
    media_type = topic.contract.format.media_type
    return list(kafka_headers({**attributes, "source": source}, media_type).items())


def _check_id(identity: bytes, what: str) -> None:
    if not identity:
        raise _missing(f"{what} is empty.")
    if len(identity) > ID_BYTES_MAX:
        raise _malformed(f"{what} has more than {ID_BYTES_MAX} bytes.")
    if has_control_characters(identity.decode(errors="ignore")):
        raise _malformed(f"{what} holds control characters.")


def _missing(saw: str) -> RefusedError:
    return RefusedError(
        "ID_MISSING",
        status=422,
        saw=saw,
        why="Without a producer's ID a repeat counts as a new event.",
        fix="Give each event an ID of its own, the same at every retry.",
    )


def _malformed(saw: str) -> RefusedError:
    return RefusedError(
        "ID_MALFORMED",
        status=422,
        saw=saw,
        why="The pipeline would make the event a dead letter.",
        fix="Use a short plain text, such as a UUID.",
    )


def _mismatch(where: str) -> RefusedError:
    return RefusedError(
        "ID_MISMATCH",
        status=422,
        saw=f"Idempotency-Key differs from {where}.",
        why="An event with two IDs could count twice.",
        fix="Send one of them, or the same ID in both.",
    )
