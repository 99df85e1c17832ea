"""What brokers note of transactions is read in both of its encodings."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest

from tallyweir.services.kafka.open_transactions import HeldBack, open_transactions
from tallyweir.sinks.protocol.offsets import TopicPartition

_KEY = struct.pack(">hh", 0, 3) + b"ord"
_HEAD = struct.pack(">qhi", 77, 4, 60_000)
_TIMES = struct.pack(">qq", 2_000, 1_000)
_FLAT = struct.pack(">ih", 1, 6) + b"orders" + struct.pack(">iii", 2, 0, 3)
#: Lengths are one more than they are; behind each part come tags, here one of 2 bytes.
_COMPACT = b"\x02\x07orders\x03" + struct.pack(">ii", 0, 3) + b"\x01\x00\x02ab"


def _entry(version: int, status: int, places: bytes) -> bytes:
    return struct.pack(">h", version) + _HEAD + bytes([status]) + places + _TIMES


@pytest.mark.parametrize(
    "value",
    [
        _entry(0, 1, _FLAT),
        _entry(1, 1, _COMPACT) + b"\x00",
        _entry(1, 2, _COMPACT) + b"\x01\x03\x02\x00\x02",
    ],
)
def test_an_open_transaction_is_told_with_its_partitions(value: bytes) -> None:
    """By whom, since when, and where it has written."""
    (found,) = open_transactions([(_KEY, value)])
    assert (found.transactional_id, found.producer_id) == ("ord", 77)
    assert found.began_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    places = {TopicPartition("orders", 0), TopicPartition("orders", 3)}
    assert places == found.places


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (_KEY, _entry(0, 4, _FLAT)),
        (_KEY, _entry(0, 0, struct.pack(">i", -1))),
        (_KEY, _entry(1, 5, b"\x00") + b"\x00"),
        # Versions of which nothing is known, and entries that end early.
        (_KEY, _entry(2, 1, _FLAT)),
        (struct.pack(">h", 1) + _KEY[2:], _entry(0, 1, _FLAT)),
        (_KEY, _entry(0, 1, _FLAT)[:20]),
        (b"", b""),
    ],
)
def test_what_is_ended_or_unknown_is_left_out(key: bytes, value: bytes) -> None:
    """Nobody is blamed on a guess."""
    assert [] == list(open_transactions([(key, value)]))


def test_without_the_right_to_ask_the_command_is_told() -> None:
    """An administrator can find out whose it is."""
    held = HeldBack(
        place=TopicPartition("orders", 3), stable_offset=7, offsets=2, transactions=()
    )
    assert "describe-producers --topic orders --partition 3" in held.told()
