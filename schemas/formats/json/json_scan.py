"""The bytes of many documents at once, and a cursor that moves through all of them.

A slice of a batch is copied into one array of bytes. ``Scan`` finds its quotation marks
that are not escaped; from then on, a text ends where the next mark is. ``Cursor`` holds
a place for each row that is still proven: a row whose bytes are not what was expected
is dropped, and read by ``json_rows`` instead. So nothing here decides that a payload is
no event.

A row that is cut off runs on into the next one. It is dropped at the end, because it
does not stop where its payload does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
WordArray = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]

QUOTE, BACKSLASH, COMMA = 0x22, 0x5C, 0x2C
OPEN, CLOSE, DOT, MINUS, ZERO = 0x7B, 0x7D, 0x2E, 0x2D, 0x30
SPACE = 0x20
_ASCII_MAX = 0x7F
_PADDING = 64
#: More than the names and the brackets of most contracts take.
_ROOM_BYTES = 1 << 14
#: The number of rows that are searched together for invalid UTF-8.
_SEARCHED_ROWS = 64
_NO_PLACES = np.zeros(0, dtype=np.int64)
_ONE_PLACE = np.zeros(1, dtype=np.int64)

_IS_SPACE = np.zeros(256, dtype=np.bool_)
_IS_SPACE[list(b" \t\n\r")] = True

_ZEROS = np.uint64(0x3030303030303030)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
#: Added to a byte below 128, it sets the high bit of those above nine.
_ABOVE_NINE = np.uint64(0x7676767676767676)
_WORD_BYTES = 8
#: Every number of this many digits fits into 64 bits.
DIGITS_MAX = 18
#: The powers of ten that fit into 64 bits.
POWERS = np.array([10**n for n in range(DIGITS_MAX + 1)], dtype=np.int64)


class Scan:
    """The bytes of a slice, with zeros behind them.

    Attributes:
        data: The bytes.
        room: The same, with room for more behind them.
        starts: Where each row's payload begins.
        ends: Where each row's payload ends.
        rows: All rows.
        quotes: The places of the quotation marks that are not escaped.
        is_doubtful: Rows that are not UTF-8, or have a control character in a text.
    """

    def __init__(self, data: ByteArray, starts: I64Array, ends: I64Array) -> None:
        """Copy and scan the bytes.

        Args:
            data: The payloads, one after the other.
            starts: As the attribute of this name, like ``ends``.
            ends: Not before its start, and not after the next one.
        """
        self.size = data.size
        self.room = np.empty(data.size + _PADDING + _ROOM_BYTES, np.uint8)
        self.data = self.room[: data.size + _PADDING]
        self.data[: data.size] = data
        self.data[data.size :] = 0
        self.starts, self.ends = starts, ends
        self.rows = np.arange(starts.size)
        self._words: WordArray = self._items("<u8")
        # The type is only one of sixteen bytes.
        self._pairs: npt.NDArray[np.complex128] = self._items("<c16")
        is_escape = self.data == BACKSLASH
        self._escapes = np.flatnonzero(is_escape) if is_escape.any() else _NO_PLACES
        self.quotes = self._find_quotes()
        self.is_doubtful = self._find_bad_texts()
        self._flag_controls()

    def where(self, rows: I64Array) -> I64Array | slice:
        """Return the index of rows in arrays that have all of them.

        Mostly no row is dropped. Then it is a slice, which costs no look-up.
        """
        return slice(None) if rows is self.rows else rows

    def words_at(self, places: I64Array) -> WordArray:
        """Return the eight bytes from each place on, the first byte lowest.

        Beyond the padding, they are zeros.
        """
        # Indexing copies what it takes; ``take`` would first copy all words.
        last = self._words.size - 1
        if places.size and places.max() > last:
            places = np.minimum(places, last)
        return self._words[places]

    def pairs_at(self, places: I64Array) -> WordArray:
        """Return the two words from each place on, of shape (places, 2).

        Beyond the padding, they are any.
        """
        last = self._pairs.size - 1
        if places.size and places.max() > last:
            places = np.minimum(places, last)
        return self._pairs[places].view(np.uint64).reshape(-1, 2)

    def bytes_at(self, places: I64Array) -> ByteArray:
        """Return the byte at each place."""
        found: ByteArray = self.data.take(places, mode="clip")
        return found

    def has_escapes(self, starts: I64Array, stops: I64Array) -> BoolArray | None:
        """Tell which spans have a backslash; None if none has."""
        if not self._escapes.size:
            return None
        found = self._escapes.searchsorted(starts) < self._escapes.searchsorted(stops)
        return found if found.any() else None

    def text_at(self, start: int, stop: int) -> str:
        """Return the characters of a row that is UTF-8."""
        return self.data[start:stop].tobytes().decode()

    def _items(self, kind: str) -> npt.NDArray[Any]:
        """Return the items of a type that begin at each byte."""
        count = self.data.size - np.dtype(kind).itemsize + 1
        return np.ndarray((count,), kind, buffer=self.data.data, strides=(1,))

    def _find_quotes(self) -> I64Array:
        is_quote = self.data == QUOTE
        if self._escapes.size:
            # A run of backslashes escapes what follows it if their number is odd.
            ends_run = np.diff(self._escapes, append=self.data.size + 1) != 1
            last = np.flatnonzero(ends_run)
            lengths = np.diff(last, prepend=-1)
            is_quote[self._escapes[last[lengths % 2 == 1]] + 1] = False
        return np.flatnonzero(is_quote)

    def _find_bad_texts(self) -> BoolArray:
        rows = self.starts.size
        bad = np.zeros(rows, np.bool_)
        if self.data.max() <= _ASCII_MAX or _is_utf8(self.data[: self.size]):
            # No sequence of bytes crosses from one row to the next: each row begins
            # with a byte that can begin a character, or is dropped.
            return bad
        for first in range(0, rows, _SEARCHED_ROWS):
            last = min(first + _SEARCHED_ROWS, rows)
            part = self.data[self.starts[first] : self.ends[last - 1]]
            if _is_utf8(part):
                continue
            for row in range(first, last):
                bad[row] = not _is_utf8(self.data[self.starts[row] : self.ends[row]])
        return bad

    def _flag_controls(self) -> None:
        if not self.size or self.data[: self.size].min() >= SPACE:
            return
        controls = np.flatnonzero(self.data[: self.size] < SPACE)
        rows = self.starts.searchsorted(controls, "right") - 1
        before = self.quotes.searchsorted(self.starts[rows])
        inside = (self.quotes.searchsorted(controls) - before) % 2 == 1
        self.is_doubtful[rows[inside]] = True


@dataclass(slots=True)
class Cursor:
    """A place in each of some rows.

    Attributes:
        scan: The bytes.
        rows: The rows, in any order.
        at: The place of each.
        quote: The index of the next quotation mark from there on.
    """

    scan: Scan
    rows: I64Array
    at: I64Array
    quote: I64Array

    def none(self) -> Cursor:
        """Return a cursor of none of the rows."""
        return self.keep(np.zeros(self.rows.size, np.bool_))

    @property
    def where(self) -> I64Array | slice:
        """The index of the rows in arrays that have all of them; see ``Scan.where``."""
        return self.scan.where(self.rows)

    def keep(self, kept: BoolArray) -> Cursor:
        """Return a cursor of some of the rows; the cursor itself if of all."""
        if kept.all():
            return self
        return Cursor(self.scan, self.rows[kept], self.at[kept], self.quote[kept])

    def bytes(self) -> ByteArray:
        """Return the byte at each place."""
        return self.scan.bytes_at(self.at)

    def skip_spaces(self) -> ByteArray:
        """Move behind spaces; return the byte at each place then."""
        found = self.bytes()
        while found.size and found.min() <= SPACE:
            is_space = _IS_SPACE[found]
            if not is_space.any():
                break
            self.at = self.at + is_space
            found = self.bytes()
        return found

    def skip_spaces_before_end(self) -> None:
        """Move behind spaces, but not into the next payload."""
        ends = self.scan.ends[self.where]
        while (is_space := _IS_SPACE[self.bytes()] & (self.at < ends)).any():
            self.at = self.at + is_space

    def text(self) -> tuple[Cursor, I64Array, I64Array]:
        """Read the text whose opening mark is at each place; drop rows without an end.

        Returns:
            The other rows, and where the characters between the marks lie.
        """
        quotes = self.scan.quotes if self.scan.quotes.size else _ONE_PLACE
        # Behind the last mark, it is that mark: no text.
        closing = quotes.take(self.quote + 1, mode="clip")
        is_text = closing > self.at
        is_text &= closing < self.scan.ends[self.where]
        kept = self.keep(is_text)
        if kept is not self:
            closing = closing[is_text]
        read = Cursor(self.scan, kept.rows, closing + 1, kept.quote + 2)
        return read, kept.at + 1, closing

    def behind(self, count: int, *, quotes: int) -> Cursor:
        """Return a cursor of the same rows that many bytes and marks further on."""
        return Cursor(self.scan, self.rows, self.at + count, self.quote + quotes)

    def moved(self, at: I64Array) -> Cursor:
        """Return a cursor of the same rows, which met no quotation mark on the way."""
        return Cursor(self.scan, self.rows, at, self.quote)


def join(parts: list[Cursor]) -> Cursor:
    """Return a cursor of the rows of one or more cursors."""
    if len(parts) == 1:
        return parts[0]
    return Cursor(
        parts[0].scan,
        np.concatenate([one.rows for one in parts]),
        np.concatenate([one.at for one in parts]),
        np.concatenate([one.quote for one in parts]),
    )


def read_digits(scan: Scan, at: I64Array) -> tuple[I64Array, I64Array]:
    """Read the digits at each place.

    Returns:
        Their value and their number. Of more than ``DIGITS_MAX`` digits, the value is
        any, and the number at least ``DIGITS_MAX + 1``.
    """
    value, counts = _read_word(scan, at)
    for _ in range(2):
        full = np.flatnonzero(counts % _WORD_BYTES == 0)
        full = full[counts[full] > 0]
        if not full.size:
            break
        more, more_counts = _read_word(scan, at[full] + counts[full])
        value[full] = value[full] * POWERS[more_counts] + more
        counts[full] += more_counts
    return value, counts


def _read_word(scan: Scan, at: I64Array) -> tuple[I64Array, I64Array]:
    word = scan.words_at(at) ^ _ZEROS
    above = (((word & _LOW_BITS) + _ABOVE_NINE) | word) & _HIGH_BITS
    count = np.bitwise_count((above - np.uint64(1)) & ~above) >> 3
    shift = ((_WORD_BYTES - count) * 8).astype(np.uint64)
    word <<= np.minimum(shift, np.uint64(56))
    word[count == 0] = 0
    return _fold(word).view(np.int64), count.astype(np.int64)


def _fold(word: WordArray) -> WordArray:
    """Join eight digits, the first in the lowest byte, to a number."""
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(
        0x00FF00FF00FF00FF
    )
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(
        0x0000FFFF0000FFFF
    )
    joined: WordArray = (
        word * np.uint64(10_000) + (word >> np.uint64(32))
    ) & np.uint64(0xFFFFFFFF)
    return joined


def _is_utf8(data: ByteArray) -> bool:
    offsets = np.array([0, data.size], dtype=np.int64)
    text = pa.Array.from_buffers(
        pa.large_string(),
        1,
        [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))],
    )
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
