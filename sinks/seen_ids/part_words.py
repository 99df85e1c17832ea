"""Reads values as words to hash, in one way for all hashes of this package.

A part is one column of values. Its value in a row is read as little-endian words of
eight bytes, padded with zeros, under a header ``tag | length << 8``. The tag keeps the
text ``"5"`` apart from the number 5, the length keeps the padding apart from a value's
own zeros. A value that is longer than the caller's limit is replaced, under a tag of
its own, by its keyed BLAKE2b digest, which bounds the width of a block's words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

WORD_BYTES = 8
KEY_BYTES = 16

U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]

_DIGEST_BYTES = 32
_TAG_LONG = 0x80

_KEEP_BYTES = np.array([(1 << 8 * n) - 1 for n in range(WORD_BYTES + 1)], np.uint64)


class Tag(IntEnum):
    """The kind of a part; it is hashed with the part."""

    TEXT = 1
    BYTES = 2
    INTEGER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of many IDs; row ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    tag: int
    data: npt.NDArray[np.uint8]
    offsets: I64Array

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBlock:
    """Some rows of a part, long values replaced.

    Attributes:
        headers: Tag and true length of each row's value.
        data: The bytes of the values. After each value's start there are at least as
            many bytes as the longest value takes, rounded up to whole words.
        starts: Where each value begins.
        lengths: Number of bytes of each value, at most the limit.
    """

    headers: U64Array
    data: npt.NDArray[np.uint8]
    starts: I64Array
    lengths: I64Array

    @property
    def width(self) -> int:
        """Number of words of the longest value."""
        return _words_for(int(self.lengths.max()))

    def count_words(self) -> I64Array:
        """Return how many words each row's value has, without its header."""
        counts: I64Array = (self.lengths + (WORD_BYTES - 1)) // WORD_BYTES
        return counts

    def take(self, rows: I64Array) -> PartBlock:
        """Return some of the rows."""
        return PartBlock(
            headers=self.headers[rows],
            data=self.data,
            starts=self.starts[rows],
            lengths=self.lengths[rows],
        )

    def read(self) -> U64Array:
        """Return the values as words: shape (rows, ``width``), zeros after each."""
        width = self.width
        if not width:
            return np.empty((len(self.starts), 0), dtype=np.uint64)
        row_bytes = WORD_BYTES * width
        # A row begins at every byte, so rows overlap; each is copied whole.
        rows = np.ndarray(
            (self.data.size - row_bytes + 1,),
            dtype=f"V{row_bytes}",
            buffer=self.data,
            strides=(1,),
        )
        words: U64Array = rows[self.starts].view("<u8").reshape(-1, width)
        for at in range(int(self.lengths.min()) // WORD_BYTES, width):
            # Bytes beyond a value's end belong to the next value.
            rest = np.clip(self.lengths - at * WORD_BYTES, 0, WORD_BYTES)
            words[:, at] &= _KEEP_BYTES[rest]
        return words


def cut_block(
    part: Part, begin: int, end: int, key: bytes, *, long_bytes: int
) -> PartBlock:
    """Cut one or more rows out of a part.

    Args:
        part: The part.
        begin: The first row.
        end: One past the last row.
        key: The secret of the installation, 16 bytes.
        long_bytes: A longer value is replaced by its digest.
    """
    assert len(key) == KEY_BYTES, "the installation's key has 16 bytes"
    offsets = part.offsets[begin : end + 1]
    starts = offsets[:-1]
    lengths = np.diff(offsets)
    headers = (lengths.astype(np.uint64) << np.uint64(8)) | np.uint64(part.tag)
    long_rows = np.flatnonzero(lengths > long_bytes)
    if long_rows.size:
        digests = bytearray()
        for row in long_rows.tolist():
            value = part.data[offsets[row] : offsets[row + 1]].tobytes()
            digests += _digest(value, key)
        headers[long_rows] |= np.uint64(_TAG_LONG)
        starts = starts - offsets[0]
        starts[long_rows] = (
            offsets[-1] - offsets[0] + _DIGEST_BYTES * np.arange(long_rows.size)
        )
        lengths[long_rows] = _DIGEST_BYTES
        own = part.data[offsets[0] : offsets[-1]]
        data = np.concatenate([own, np.frombuffer(digests, dtype=np.uint8)])
    else:
        data = part.data
    row_bytes = WORD_BYTES * _words_for(int(lengths.max()))
    if int(starts.max()) + row_bytes > data.size:
        if data is part.data:
            data, starts = data[offsets[0] : offsets[-1]], starts - offsets[0]
        data = np.concatenate([data, np.zeros(row_bytes, dtype=np.uint8)])
    return PartBlock(headers=headers, data=data, starts=starts, lengths=lengths)


def _words_for(length: int) -> int:
    return (length + (WORD_BYTES - 1)) // WORD_BYTES


def _digest(value: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES, key=key).digest()
