"""Decode the decimals of many rows from big-endian bytes to Arrow's 128 bits.

On the wire a decimal is its unscaled number in two's complement. Writers choose the
number of bytes: extra sign bytes in front do not change the number.
"""

from __future__ import annotations

import numpy as np

from tallyweir.schemas.formats.avro.byte_cursor import (
    BoolArray,
    ByteCursor,
    Content,
    I64Array,
    WordArray,
)

_WORD_BYTES = 8
_DECIMAL_BYTES = 16
_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1
#: Every number of this many digits fits in 64 bits.
_WORD_DIGITS_MAX = 18
_ALL_BITS = 0xFF


def read_decimals(
    cursor: ByteCursor, starts: I64Array, stops: I64Array, precision: int
) -> I64Array:
    """Read the bytes of each row as one number; flag rows without bytes or too wide.

    Args:
        cursor: The rows' cursor, already past these bytes.
        starts: Where each row's bytes start.
        stops: Where each row's bytes end, at or after their start.
        precision: The most digits that a number may have.

    Returns:
        Two words a row, the low one first, as Arrow stores them; for a bad row, any
        two words.
    """
    sizes = stops - starts
    if sizes.min() == 0:
        cursor.is_bad |= sizes == 0
    longest = int(sizes.max())
    if longest > _DECIMAL_BYTES:
        cursor.is_bad |= _is_too_wide(cursor.content, starts, stops)
        starts = np.maximum(starts, stops - _DECIMAL_BYTES)
        sizes = stops - starts
    first = cursor.content.words_at(starts).byteswap().view(np.int64)
    if longest <= _WORD_BYTES:
        low: I64Array = first >> (_WORD_BITS - 8 * sizes)
        high = low >> (_WORD_BITS - 1)
        outside = _is_outside_word(low, precision)
    else:
        second = cursor.content.words_at(starts + _WORD_BYTES).byteswap()
        high, low = _shift_right(first, second, 2 * _WORD_BITS - 8 * sizes)
        outside = _is_outside(high, low, precision)
    if outside is not None and outside.any():
        cursor.is_bad |= outside
    return np.stack([low, high], axis=1)


def flag_wide_decimals(
    cursor: ByteCursor, starts: I64Array, stops: I64Array, precision: int
) -> None:
    """Flag rows as ``read_decimals`` does, for numbers of over 38 digits.

    Only rows with bytes enough for a number that is too wide are read one by one.
    """
    sizes = stops - starts
    cursor.is_bad |= sizes == 0
    highest = 10**precision - 1
    doubtful = np.flatnonzero(sizes > highest.bit_length() // 8)
    for row in doubtful.tolist():
        unscaled = cursor.content.bytes[starts[row] : stops[row]].tobytes()
        if abs(int.from_bytes(unscaled, signed=True)) > highest:
            cursor.is_bad[row] = True


def _shift_right(
    first: I64Array, second: WordArray, bits: I64Array
) -> tuple[I64Array, I64Array]:
    """Shift numbers of two words right; the first word holds the sign."""
    is_short = bits >= _WORD_BITS
    signs = first >> (_WORD_BITS - 1)
    # A shift by a whole word's bits or more leaves zero, or only the sign.
    down = bits.astype(np.uint64)
    up = (_WORD_BITS - bits).clip(0).astype(np.uint64)
    joined = (second >> down) | (first.view(np.uint64) << up)
    low = np.where(
        is_short, first >> (bits - _WORD_BITS).clip(0), joined.view(np.int64)
    )
    high = np.where(is_short, signs, first >> bits)
    return high, low


def _is_too_wide(content: Content, starts: I64Array, stops: I64Array) -> BoolArray:
    """Find numbers with more than sign bytes before their last sixteen bytes."""
    is_wide = stops - starts > _DECIMAL_BYTES
    heads = stops[is_wide] - _DECIMAL_BYTES
    signs = np.where(content.bytes[heads] > _ALL_BITS >> 1, _ALL_BITS, 0)
    # Every second pair of neighbours is the spare bytes of one number.
    pairs = np.stack([starts[is_wide], heads], axis=1).ravel()
    is_odd: BoolArray = np.zeros(starts.size, dtype=np.bool_)
    is_odd[is_wide] = (np.minimum.reduceat(content.bytes, pairs)[::2] != signs) | (
        np.maximum.reduceat(content.bytes, pairs)[::2] != signs
    )
    return is_odd


def _is_outside_word(values: I64Array, precision: int) -> BoolArray | None:
    if precision > _WORD_DIGITS_MAX:
        return None
    largest = 10**precision - 1
    outside: BoolArray = (values > largest) | (values < -largest)
    return outside


def _is_outside(high: I64Array, low: I64Array, precision: int) -> BoolArray:
    """Find numbers of two words that have more digits."""
    largest = 10**precision - 1
    unsigned = low.view(np.uint64)
    most, most_low = largest >> _WORD_BITS, largest & _WORD_MASK
    least, least_low = -largest >> _WORD_BITS, -largest & _WORD_MASK
    is_above = (high > most) | ((high == most) & (unsigned > most_low))
    is_below = (high < least) | ((high == least) & (unsigned < least_low))
    outside: BoolArray = is_above | is_below
    return outside
