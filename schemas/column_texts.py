"""Texts of many rows at once: gather them from payloads, and tell which are none.

A column of texts in Arrow is one buffer of bytes and the offsets into it. Offsets that
also name the gaps between the texts make a column of the payloads themselves, from
which Arrow then takes every second element: one copy, made in C++.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.byte_cursor import BoolArray, ByteCursor, Content, I64Array

_ASCII_MAX = 0x7F
_UUID_CHARACTERS = 36
_UUID_DASHES = [8, 13, 18, 23]
_UUID_DIGITS = [n for n in range(_UUID_CHARACTERS) if n not in _UUID_DASHES]
#: Texts that are searched together for those that are no UTF-8.
_SEARCHED_ROWS = 256

_IS_HEX = np.zeros(256, dtype=np.bool_)
_IS_HEX[list(b"0123456789abcdefABCDEF")] = True


def make_spans(content: Content, starts: I64Array, stops: I64Array) -> npt.NDArray[Any]:
    """Note where each row's bytes lie, as ``gather_texts`` wants it: a pair a row."""
    spans = np.empty((starts.size, 2), dtype=content.offset_type)
    spans[:, 0] = starts
    spans[:, 1] = stops
    return spans


def gather_texts(content: Content, spans: npt.NDArray[Any]) -> pa.Array:
    """Copy each row's bytes into a column of texts, which are not checked here.

    Args:
        content: What the spans are in.
        spans: Where each row's bytes start and stop; no number is lower than the one
            before it.

    Raises:
        pa.ArrowInvalid: They are over 2 GiB in all, more than such a column holds.
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
    # Arrow believes what it is told, and would read what is not there.
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
    """Mark the rows as malformed whose texts are none, or no UUIDs where asked for."""
    spans = make_spans(cursor.content, starts, stops)
    texts = gather_texts(cursor.content, spans)
    bad = find_bad_texts(texts)
    if is_uuid:
        bad += find_no_uuids(texts)
    if bad:
        cursor.is_bad[bad] = True


def find_bad_texts(texts: pa.Array) -> list[int]:
    """Tell which texts are no UTF-8.

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
    """Tell which texts are no UUIDs, in any of the forms that Python reads.

    Texts of the usual form are seen by columns, and Python reads all others.

    Args:
        texts: As in ``find_bad_texts``.
        is_present: Which of them stand for a value; None if all do.
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
