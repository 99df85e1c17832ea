"""Gather the texts of many rows from payloads, and find those that are invalid.

Arrow stores a column of texts as one buffer of bytes and the offsets into it. With
offsets that also cover the gaps between the texts, the payloads themselves form such a
column. Arrow then takes every second element of it: one copy, made in C++.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.schemas.formats.avro.byte_cursor import (
    BoolArray,
    ByteCursor,
    Content,
    I64Array,
)

_ASCII_MAX = 0x7F
_UUID_CHARACTERS = 36
_UUID_DASHES = [8, 13, 18, 23]
_UUID_DIGITS = [n for n in range(_UUID_CHARACTERS) if n not in _UUID_DASHES]
#: The number of texts that are searched together for invalid UTF-8.
_SEARCHED_ROWS = 256

_IS_HEX = np.zeros(256, dtype=np.bool_)
_IS_HEX[list(b"0123456789abcdefABCDEF")] = True


def make_spans(content: Content, starts: I64Array, stops: I64Array) -> npt.NDArray[Any]:
    """Return where each row's bytes lie, for ``gather_texts``: a pair for each row."""
    spans = np.empty((starts.size, 2), dtype=content.offset_type)
    spans[:, 0] = starts
    spans[:, 1] = stops
    return spans


def gather_texts(content: Content, spans: npt.NDArray[Any]) -> pa.Array:
    """Copy each row's bytes into a column of texts, without checking them.

    Args:
        content: The content that the spans refer to.
        spans: Where each row's bytes start and stop, in ascending order.

    Raises:
        pa.ArrowInvalid: The texts take over 2 GiB in all, too much for one column.
    """
    return _gather(content, spans, pa.string(), pa.large_string())


def gather_bytes(content: Content, spans: npt.NDArray[Any]) -> pa.Array:
    """Copy each row's bytes into a column of byte strings, as ``gather_texts`` does."""
    return _gather(content, spans, pa.binary(), pa.large_binary())


def _gather(
    content: Content, spans: npt.NDArray[Any], kind: pa.DataType, wide: pa.DataType
) -> pa.Array:
    rows = len(spans)
    places = spans.ravel()
    # Arrow does not check offsets, and would read outside of the buffer.
    assert 0 <= places[0] <= places[-1] <= content.bytes.size, "spans lead outside"
    assert (places[1:] >= places[:-1]).all(), "spans overlap"
    is_wide = spans.dtype == np.int64
    elements = pa.Array.from_buffers(
        wide if is_wide else kind,
        2 * rows - 1,
        [None, pa.py_buffer(spans), content.buffer],
    )
    found = elements.take(pa.array(np.arange(0, 2 * rows, 2)))
    return found.cast(kind, safe=False) if is_wide else found


def flag_bad_texts(
    cursor: ByteCursor, starts: I64Array, stops: I64Array, *, is_uuid: bool
) -> None:
    """Flag rows whose text is not UTF-8 or, if ``is_uuid``, not a UUID."""
    spans = make_spans(cursor.content, starts, stops)
    texts = gather_texts(cursor.content, spans)
    bad = find_bad_texts(texts)
    if is_uuid:
        bad += find_no_uuids(texts)
    if bad:
        cursor.is_bad[bad] = True


def find_bad_texts(texts: pa.Array) -> list[int]:
    """Find the texts that are not UTF-8.

    Args:
        texts: Unchecked texts without nulls and without an offset.
    """
    data = _data(texts)
    if data.size == 0 or data.max() <= _ASCII_MAX or _is_valid(texts):
        return []
    found: list[int] = []
    for start in range(0, len(texts), _SEARCHED_ROWS):
        part = texts.slice(start, _SEARCHED_ROWS)
        if not _is_valid(part):
            raw = part.view(pa.binary()).to_pylist()
            found += [start + n for n, text in enumerate(raw) if not _is_utf8(text)]
    return found


def find_no_uuids(texts: pa.Array, is_present: BoolArray | None = None) -> list[int]:
    """Find the texts that are not a UUID in any of the forms that Python reads.

    Column operations recognise texts of the usual form; Python reads all others.

    Args:
        texts: As in ``find_bad_texts``.
        is_present: Which texts stand for a value; None if all do.
    """
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[: len(texts) + 1]
    is_doubtful = np.diff(offsets) != _UUID_CHARACTERS
    usual = np.flatnonzero(~is_doubtful)
    if usual.size:
        data = _data(texts)
        if usual.size == len(texts):
            characters = data.reshape(-1, _UUID_CHARACTERS)
        else:
            places = offsets[usual][:, np.newaxis] + np.arange(_UUID_CHARACTERS)
            characters = data[places]
        has_dashes = (characters[:, _UUID_DASHES] == ord("-")).all(axis=1)
        has_digits = _IS_HEX[characters[:, _UUID_DIGITS]].all(axis=1)
        is_doubtful[usual] = ~(has_dashes & has_digits)
    if is_present is not None:
        is_doubtful &= is_present
    raw = texts.view(pa.binary())
    doubtful = np.flatnonzero(is_doubtful).tolist()
    return [row for row in doubtful if not _is_uuid(raw[row].as_py())]


def _is_valid(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_uuid(text: bytes) -> bool:
    try:
        uuid.UUID(text.decode())
    except ValueError:
        return False
    return True


def _data(texts: pa.Array) -> npt.NDArray[np.uint8]:
    return np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
