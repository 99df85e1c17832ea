"""What the relay sends: a row of the home database as a Kafka message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.errors import ReasonCode
from sinks.postgres.records.relay_feed import (
    DEAD_LETTERS,
    OUTBOX,
    DeadLetter,
    OutboxMessage,
)

DEAD_LETTER_SUFFIX = ".dlq"
#: Bytes of a header's value at most: records nearly as large as their topic takes
#: must still fit with their headers.
HEADER_BYTES_MAX = 16_384

_CONNECT = "__connect.errors."

# Stages by Connect's names. Whatever else is wrong with a record, a rule of the
# pipeline has found.
_STAGES = {
    **{str(code): "VALUE_CONVERTER" for code in ReasonCode},
    "REJECTED_BY_POSTGRES": "TASK_PUT",
}
_STAGE_OF_RULES = "TRANSFORMATION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to send.

    Attributes:
        topic: Where to.
        source_topic: Whose partitions ``topic`` gets when it is made.
        source_partition: Where the record was read: messages of one such partition
            stay in one partition and in order. None: the key chooses the partition,
            as it does for Kafka's Java clients.
        key: Kafka's.
        value: Kafka's; None is a tombstone.
        headers: In the order in which they are sent.
    """

    topic: str
    source_topic: str
    source_partition: int | None
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = field(repr=False)


def dead_letter_message(
    letter: DeadLetter, *, pipeline: str, installation: str
) -> Message:
    """Write a dead letter as Kafka Connect does, with an ID of CloudEvents.

    The ID is made of where the record was read and of nothing else, so it is the same
    however often the message is sent, and whichever batch the record falls into after
    a restore.

    Args:
        letter: What was read from the home database.
        pipeline: Whose it is.
        installation: Of that database.
    """
    place = letter.place
    texts = {
        _CONNECT + "topic": place.topic,
        _CONNECT + "partition": str(place.partition),
        _CONNECT + "offset": str(place.offset),
        _CONNECT + "connector.name": pipeline,
        _CONNECT + "stage": _STAGES.get(letter.reason, _STAGE_OF_RULES),
        _CONNECT + "exception.class.name": letter.reason,
        _CONNECT + "exception.message": letter.detail,
        **_identity(DEAD_LETTERS, letter, pipeline, installation),
    }
    if letter.kafka_timestamp is not None:
        texts["ce_time"] = letter.kafka_timestamp.isoformat()
    return Message(
        topic=letter.source_topic + DEAD_LETTER_SUFFIX,
        source_topic=letter.source_topic,
        source_partition=place.partition,
        key=letter.key,
        value=letter.payload,
        headers=_headers(texts),
    )


def outbox_message(
    waiting: OutboxMessage, *, pipeline: str, installation: str
) -> Message:
    """Write a message of the outbox as a CloudEvent in binary mode.

    Its ID is made of where its event was read, of the topic that it goes to, and of
    nothing else, as that of a dead letter is.

    Args:
        waiting: What was read from the home database.
        pipeline: Whose it is.
        installation: Of that database.
    """
    place = waiting.place
    texts = {
        **_identity(OUTBOX, waiting, pipeline, installation),
        "content-type": "application/json",
    }
    if waiting.event_id is not None:
        texts["ce_eventid"] = waiting.event_id
    return Message(
        topic=place.target,
        source_topic=waiting.source_topic,
        source_partition=place.partition if waiting.key is None else None,
        key=waiting.key,
        value=waiting.value,
        headers=_headers(texts),
    )


def _identity(
    stream: str, message: DeadLetter | OutboxMessage, pipeline: str, installation: str
) -> dict[str, str]:
    place = message.place
    # At the same offset of the topic that had the name before there was another record.
    renewed = f"@{message.renewed_id}" if message.renewed_id else ""
    return {
        "ce_specversion": "1.0",
        "ce_type": f"tallyweir.{stream}",
        "ce_source": f"/tallyweir/{installation}/{pipeline}",
        # The target is in it: one event may give a message to several topics.
        "ce_id": "/".join(
            [
                stream,
                *([place.target] if place.target else []),
                f"{place.topic}{renewed}",
                str(place.partition),
                str(place.offset),
            ]
        ),
    }


def _headers(texts: Mapping[str, str]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, _clip(text)) for name, text in texts.items())


def _clip(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) <= HEADER_BYTES_MAX:
        return encoded
    # Cut between characters: the headers are promised to be UTF-8.
    return encoded[:HEADER_BYTES_MAX].decode(errors="ignore").encode()
