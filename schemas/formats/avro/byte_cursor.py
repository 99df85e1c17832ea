"""A cursor over many payloads at once: the place of each row, and reads of numbers.

All payloads of a batch lie in one buffer, one after the other. A cursor holds the
place of every row in it and moves all rows together, with a few numpy operations.
It accepts what ``strict_walk`` accepts and nothing else.

A malformed row stays in the cursor, with a flag: excluding it from every operation
would cost more. Three facts make that safe:

- a row never leaves its own payload. A move beyond the payload's end stops there and
  flags the row, so that no length is believed, however large it is;
- a read at a payload's end returns bytes of the next payload. But every read moves the
  row on, and moving on from the end flags it;
- places never decrease from one row to the next, because payloads do not overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.schemas.formats.avro.strict_walk import INT_BYTES_MAX, LONG_BYTES_MAX
from tallyweir.schemas.schema_tree import INT, LONG

BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
WordArray = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]

_WORD_BYTES = 8
_LAST_BYTE_MAX = 0x7F
#: A byte with none of these bits is a whole number of zero to 63.
_NOT_SMALL = 0x81
_MORE_FOLLOWS = 0x8080808080808080
#: The masks of two neighbours of 7, 14 and 28 bits, and the gap between them.
_GAPS = (
    (0x7F007F007F007F00, 0x007F007F007F007F, 1),
    (0x3FFF00003FFF0000, 0x00003FFF00003FFF, 2),
    (0x0FFFFFFF00000000, 0x000000000FFFFFFF, 4),
)
#: The tenth byte of a number holds only the 64th bit.
_TENTH_BYTE_MAX = 1
_INT_BITS = 32
_INT32_MAX = (1 << 31) - 1
_NO_ROWS = np.zeros(0, dtype=np.int64)


class Content:
    """The bytes of a batch's payloads, one payload after the other.

    Attributes:
        bytes: All bytes, with zeros behind them if they are fewer than eight.
        buffer: The same bytes, for Arrow.
        offset_type: The narrowest type that can hold a place in them.
    """

    def __init__(self, data: ByteArray) -> None:
        if data.size < _WORD_BYTES:
            data = np.concatenate([data, np.zeros(_WORD_BYTES, np.uint8)])
        self.bytes = data
        self.buffer = pa.py_buffer(data)
        self.offset_type = np.int32 if data.size <= _INT32_MAX else np.int64
        # A word begins at every byte, so the words overlap.
        self._words: WordArray = np.ndarray(
            (data.size - _WORD_BYTES + 1,), "<u8", buffer=data.data, strides=(1,)
        )
        self._payloads: dict[int, tuple[int, bytes]] = {}

    def bytes_at(self, places: I64Array) -> ByteArray:
        """Return the byte at each place; beyond the content, any byte."""
        found: ByteArray = self.bytes.take(places, mode="clip")
        return found

    def words_at(self, places: I64Array) -> WordArray:
        """Return the eight bytes from each place on, the first byte lowest.

        Zeros follow the content.

        Args:
            places: In ascending order; equal places may follow each other.
        """
        last = self._words.size - 1
        if places[-1] <= last:
            return self._words[places]
        found = self._words[np.minimum(places, last)]
        beyond = int(places.searchsorted(last, "right"))
        found[beyond:] >>= ((places[beyond:] - last) * 8).astype(np.uint64)
        return found

    def payload_up_to(self, start: int, end: int) -> tuple[bytes, int]:
        """Return the rest of one payload as bytes, and the place of ``start`` in them.

        The copy is cached, because a payload may hold very many small parts.
        """
        base, payload = self._payloads.get(end, (end, b""))
        if start < base:
            base, payload = start, self.bytes[start:end].tobytes()
            self._payloads[end] = (base, payload)
        return payload, start - base


class ByteCursor:
    """A place in the content for each of one or more rows.

    Attributes:
        content: The content that the places refer to.
        at: The place of each row, within its payload or at its end. ``merge`` changes
            this array in place.
        ends: Where each row's payload ends.
        is_bad: Which rows are malformed.
    """

    __slots__ = ("at", "content", "ends", "is_bad")

    def __init__(
        self,
        content: Content,
        at: I64Array,
        ends: I64Array,
        is_bad: BoolArray | None = None,
    ) -> None:
        """Place each row.

        Args:
            content: As the attribute of this name, like the other arguments.
            at: Where each row starts; not beyond its end, and in ascending order.
            ends: Where each row ends; not after the start of the next row.
            is_bad: None if no row is bad.
        """
        self.content = content
        self.at = at
        self.ends = ends
        self.is_bad = np.zeros(at.size, np.bool_) if is_bad is None else is_bad

    def select(self, rows: I64Array) -> ByteCursor:
        """Return a cursor of some rows, one or more, in ascending order."""
        return ByteCursor(self.content, self.at[rows], self.ends[rows])

    def merge(self, rows: I64Array, part: ByteCursor) -> None:
        """Take over the places and flags from a cursor of some rows."""
        self.at[rows] = part.at
        if part.is_bad.any():
            self.is_bad[rows] |= part.is_bad

    def advance(self, sizes: npt.NDArray[Any] | int) -> bool:
        """Move each row on, at most to its end.

        Args:
            sizes: The number of bytes, not below zero.

        Returns:
            Whether some row would have left its payload. Such rows are now bad.
        """
        self.at = self.at + sizes
        is_beyond = self.at > self.ends
        if not is_beyond.any():
            return False
        np.minimum(self.at, self.ends, out=self.at)
        self.is_bad |= is_beyond
        return True

    def read_bytes(self) -> ByteArray:
        """Read one byte of each row."""
        found = self.content.bytes_at(self.at)
        self.advance(1)
        return found

    def read_words(self, size: int) -> WordArray:
        """Read up to eight bytes of each row; the bits above them may be anything."""
        found = self.content.words_at(self.at)
        self.advance(size)
        return found

    def read_longs(self, bounds: tuple[int, int]) -> I64Array:
        """Read a number of up to ten bytes; rows out of bounds become bad."""
        raw, sizes, unfinished = self._read_varints()
        if unfinished.size:
            self._finish_long_ones(raw, sizes, unfinished)
        self.advance(sizes)
        return self._within(_unzigzag(raw), bounds if bounds != LONG else None)

    def read_ints(self, bounds: tuple[int, int]) -> I64Array:
        """Read a number of up to five bytes; rows out of bounds become bad."""
        raw, sizes, _ = self._read_varints()
        if sizes.max() >= INT_BYTES_MAX:
            self.is_bad |= (sizes > INT_BYTES_MAX) | (raw >> _INT_BITS != 0)
        self.advance(sizes)
        return self._within(_unzigzag(raw), bounds if bounds != INT else None)

    def read_indices(self, limit: int) -> npt.NDArray[Any]:
        """Read an index below ``limit``; bad rows also get some index below it."""
        first = self.content.bytes_at(self.at)
        if (first & _NOT_SMALL).any():
            return self.read_ints((0, limit - 1))
        self.advance(1)
        first >>= 1
        if first.max() < limit:
            return first
        self.is_bad |= first >= limit
        return np.where(first < limit, first, 0)

    def read_spans(self) -> tuple[I64Array, I64Array]:
        """Read a length and move on by it; return where the measured bytes lie."""
        first = self.content.bytes_at(self.at)
        if not (first & _NOT_SMALL).any():
            starts = self.at + 1
            if self.advance((first >> 1).astype(np.int64) + 1):
                np.minimum(starts, self.at, out=starts)
            return starts, self.at
        # No payload is longer than the content, and the addition must not overflow.
        sizes = self.read_longs((0, LONG[1]))
        starts = self.at
        self.advance(np.minimum(sizes, self.content.bytes.size))
        return starts, self.at

    def _read_varints(self) -> tuple[WordArray, ByteArray, I64Array]:
        """Look at up to eight bytes of a number.

        Returns:
            The bits found in each row, the number of bytes they took, and the rows
            whose number is longer than eight bytes.
        """
        raw = self.content.words_at(self.at)
        # The lowest of these bits is in the first byte without a continuation bit.
        stops = raw & _MORE_FOLLOWS
        stops ^= _MORE_FOLLOWS
        kept = stops - 1
        kept ^= stops
        raw &= kept
        sizes = np.bitwise_count(kept)
        sizes >>= 3
        # Join groups of 7 bits to groups of 14, then of 28, then of 56.
        longest = sizes.max()
        has_unfinished = longest == _WORD_BYTES and not stops.all()
        unfinished = np.flatnonzero(stops == 0) if has_unfinished else _NO_ROWS
        spare = stops
        for step, (upper, lower, gap) in enumerate(_GAPS):
            if step and longest <= 1 << step:
                break
            np.bitwise_and(raw, upper, out=spare)
            spare >>= gap
            raw &= lower
            raw |= spare
        return raw, sizes, unfinished

    def _finish_long_ones(
        self, raw: WordArray, sizes: ByteArray, rows: I64Array
    ) -> None:
        """Add the ninth byte, and the tenth if there is one, to these numbers."""
        ninth = self.content.bytes_at(self.at[rows] + _WORD_BYTES)
        tenth = self.content.bytes_at(self.at[rows] + _WORD_BYTES + 1)
        has_tenth = ninth > _LAST_BYTE_MAX
        tenth[~has_tenth] = 0
        self.is_bad[rows] |= tenth > _TENTH_BYTE_MAX
        ninth &= _LAST_BYTE_MAX
        raw[rows] |= (ninth.astype(np.uint64) << 56) | (tenth.astype(np.uint64) << 63)
        sizes[rows] = np.where(has_tenth, LONG_BYTES_MAX, LONG_BYTES_MAX - 1)

    def _within(self, values: I64Array, bounds: tuple[int, int] | None) -> I64Array:
        """Flag the rows whose value is out of bounds, and clip the values."""
        if bounds is None:
            return values
        lowest, highest = bounds
        if lowest <= values.min() and values.max() <= highest:
            return values
        self.is_bad |= (values < lowest) | (values > highest)
        return values.clip(lowest, highest)


def _unzigzag(raw: WordArray) -> I64Array:
    signs = raw & 1
    np.negative(signs, out=signs)
    raw >>= 1
    raw ^= signs
    return raw.view(np.int64)
