"""Questions and answers of claims as bytes, for a connection between two processes.

A message is a header and columns, one after the other, in little-endian byte order.
Columns of words begin at a multiple of eight bytes, since numpy uses them in place and
is slower on unaligned words. Both sides are of one release: a driver and its own tasks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.vote_text import format_failure, parse_failure
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer

#: Round, number of rows, and flags for the optional columns.
_QUESTION = struct.Struct("<qqq")
_HAS_HASHES, _HAS_ONLY_CORRECTS = 1, 2
_ANSWERED, _FAILED = bytes(8), b"\x01"


def pack_question(round_number: int, asked: Candidates) -> bytes:
    """Write a question of a round."""
    columns: list[npt.NDArray[Any]] = [
        asked.place,
        asked.offset,
        asked.bucket,
        asked.hi,
        asked.lo,
    ]
    flags = 0
    if asked.payload_hashes is not None:
        flags |= _HAS_HASHES
        columns.append(asked.payload_hashes)
    only_corrects = asked.only_corrects
    if only_corrects is not None:
        flags |= _HAS_ONLY_CORRECTS
    header = _QUESTION.pack(round_number, len(asked), flags)
    parts: list[bytes | memoryview] = [header, *map(_packed, columns)]
    if only_corrects is not None:
        parts.append(_packed(only_corrects))
    return b"".join(parts)


def unpack_question(message: bytes) -> tuple[int, Candidates]:
    """Read what ``pack_question`` wrote."""
    round_number, rows, flags = _QUESTION.unpack_from(message)
    columns = _columns(message, _QUESTION.size, rows)
    return round_number, Candidates(
        place=next(columns).view(np.int64),
        offset=next(columns).view(np.int64),
        bucket=next(columns).view(np.int64),
        hi=next(columns),
        lo=next(columns),
        payload_hashes=next(columns) if flags & _HAS_HASHES else None,
        only_corrects=np.frombuffer(message, dtype=np.bool_, offset=len(message) - rows)
        if flags & _HAS_ONLY_CORRECTS
        else None,
    )


def pack_answer(answer: ClaimAnswer) -> bytes:
    """Write an answer."""
    return b"".join([_ANSWERED, _packed(answer.buckets), _packed(answer.classes)])


def pack_failure(error: TallyweirError) -> bytes:
    """Write an error in place of an answer."""
    return _FAILED + format_failure(error).encode()


def unpack_answer(message: bytes) -> ClaimAnswer:
    """Read an answer.

    Raises:
        TallyweirError: The error that was packed instead.
    """
    if message[:1] == _FAILED:
        raise parse_failure(message[1:].decode())
    rows, start = (len(message) - len(_ANSWERED)) // 9, len(_ANSWERED)
    return ClaimAnswer(
        classes=np.frombuffer(message, dtype=np.uint8, offset=start + 8 * rows),
        buckets=np.frombuffer(message, dtype="<i8", count=rows, offset=start),
    )


def _packed(column: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(column).data.cast("B")


def _columns(message: bytes, start: int, rows: int) -> Iterator[npt.NDArray[np.uint64]]:
    while True:
        yield np.frombuffer(message, dtype="<u8", count=rows, offset=start)
        start += 8 * rows
