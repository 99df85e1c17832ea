"""Dead letters as messages: nothing of the record is lost, and the ID is stable."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tallyweir.services.relay.messages import (
    HEADER_BYTES_MAX,
    Message,
    dead_letter_message,
    outbox_message,
)
from tallyweir.sinks.postgres.records.relay_feed import (
    DeadLetter,
    OutboxMessage,
    RelayPlace,
)


def _message(
    *,
    sequence: int = 7,
    offset: int = 42,
    reason: str = "MALFORMED",
    detail: str = "d",
    renewed_id: str | None = None,
) -> Message:
    letter = DeadLetter(
        place=RelayPlace(sequence=sequence, topic="orders", partition=3, offset=offset),
        source_topic="orders",
        renewed_id=renewed_id,
        kafka_timestamp=datetime(2026, 1, 2, tzinfo=UTC),
        reason=reason,
        detail=detail,
        key=b"k",
        payload=b"\x00secret",
    )
    return dead_letter_message(letter, pipeline="p", installation="0123456789ab")


def _id(message: Message) -> tuple[bytes, bytes]:
    headers = dict(message.headers)
    return headers["ce_source"], headers["ce_id"]


def test_the_id_is_of_the_position_and_not_of_the_batch() -> None:
    """After a restore a record may fall into another batch."""
    assert _id(_message(sequence=7)) == _id(_message(sequence=8))
    assert _id(_message(offset=42)) != _id(_message(offset=43))
    assert (
        b"/tallyweir/0123456789ab/p",
        b"dead_letter/orders/3/42",
    ) == _id(_message())
    # The record at that offset of a topic that was made again is another one.
    renewed = _id(_message(renewed_id="kQ3"))
    assert b"dead_letter/orders@kQ3/3/42" == renewed[1]


@pytest.mark.parametrize(
    ("reason", "stage"),
    [
        ("BAD_MAGIC", b"VALUE_CONVERTER"),
        ("REJECTED_BY_POSTGRES", b"TASK_PUT"),
        ("MISSING_ID", b"TRANSFORMATION"),
        ("A_RULE_OF_THE_PIPELINE", b"TRANSFORMATION"),
    ],
)
def test_the_stage_is_one_that_connect_knows(reason: str, stage: bytes) -> None:
    """Its tools group by it."""
    headers = dict(_message(reason=reason).headers)
    assert stage == headers["__connect.errors.stage"]
    assert reason.encode() == headers["__connect.errors.exception.class.name"]


def test_a_long_detail_is_cut_between_characters() -> None:
    """Headers must leave room for the record, and must stay UTF-8."""
    cut = dict(_message(detail="ß" * HEADER_BYTES_MAX).headers)
    text = cut["__connect.errors.exception.message"].decode()
    assert "ß" * (HEADER_BYTES_MAX // 2) == text
    odd = dict(_message(detail="x" + "ß" * HEADER_BYTES_MAX).headers)
    text = odd["__connect.errors.exception.message"].decode()
    assert "x" + "ß" * (HEADER_BYTES_MAX // 2 - 1) == text


def test_what_producers_wrote_is_in_no_repr() -> None:
    """Logs show messages; payloads may be anybody's secret."""
    assert "secret" not in repr(_message())


def test_an_outbox_message_goes_by_its_key_or_else_by_its_origin() -> None:
    """Either way what must stay in order stays in one partition."""

    def partition(key: bytes | None) -> int | None:
        waiting = OutboxMessage(
            place=RelayPlace(
                sequence=7, topic="orders", partition=3, offset=42, target="out"
            ),
            source_topic="orders",
            renewed_id=None,
            event_id=None,
            key=key,
            value=b"{}",
        )
        message = outbox_message(waiting, pipeline="p", installation="0123456789ab")
        assert "ce_eventid" not in dict(message.headers)
        return message.source_partition

    assert partition(b"k") is None
    assert partition(b"") is None
    assert 3 == partition(None)
