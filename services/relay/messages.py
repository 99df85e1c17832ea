"""Turns a row of the home database into the Kafka message to send. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallyweir.schemas.errors import ReasonCode
from tallyweir.sinks.postgres.records.relay_feed import (
    DEAD_LETTERS,
    OUTBOX,
    DeadLetter,
    OutboxMessage,
)

DEAD_LETTER_SUFFIX = ".dlq"
#: Most bytes of a header's value: a record nearly as large as its topic allows must
#: still fit with its headers.
HEADER_BYTES_MAX = 16_384

_CONNECT = "__connect.errors."

# Stages by Connect's names. For all other reasons, a rule of the pipeline has found the
# problem.
_STAGES = {
    **{str(code): "VALUE_CONVERTER" for code in ReasonCode},
    "REJECTED_BY_POSTGRES": "TASK_PUT",
}
_STAGE_OF_RULES = "TRANSFORMATION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to send.

    Attributes:
        topic: Topic to send to.
        source_topic: When the relay creates ``topic``, it gets as many partitions as
            this one.
        source_partition: Partition where the record was read: messages of one source
            partition stay in one partition and in order. None: the key chooses the
            partition, as in Kafka's Java clients.
        key: Key of the Kafka message.
        value: Value of the Kafka message; None makes it a tombstone.
        headers: Headers in the order in which they are sent.
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
    """Write a dead letter as Kafka Connect does, with a CloudEvents ID.

    The ID depends only on the position where the record was read. So it stays the same
    however often the message is sent, and in whichever batch a restore puts the record.

    Args:
        letter: A dead letter of the home database.
        pipeline: Name of its pipeline.
        installation: Installation ID of that database.
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

    Its ID depends only on the position where its event was read and on the topic that
    it goes to.

    Args:
        waiting: An outbox message of the home database.
        pipeline: Name of its pipeline.
        installation: Installation ID of that database.
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
    # A former topic of the same name had another record at the same offset.
    renewed = f"@{message.renewed_id}" if message.renewed_id else ""
    return {
        "ce_specversion": "1.0",
        "ce_type": f"tallyweir.{stream}",
        "ce_source": f"/tallyweir/{installation}/{pipeline}",
        # The ID has the target: one event may produce messages for several topics.
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
    # Cut between characters: headers are always UTF-8.
    return encoded[:HEADER_BYTES_MAX].decode(errors="ignore").encode()
