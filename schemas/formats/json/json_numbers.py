"""Read the numbers and the times of many rows at once.

What is not written in the usual way is left to the caller: it reads such values one at
a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tallyweir.schemas.formats.json.json_scan import (
    DIGITS_MAX,
    DOT,
    MINUS,
    POWERS,
    ZERO,
    BoolArray,
    Cursor,
    I64Array,
    Scan,
    WordArray,
    read_digits,
)
from tallyweir.schemas.formats.json.json_times import (
    HIGHEST_MICROS,
    LOWEST_MICROS,
    MICROS,
)

_LOWER_E, _LOWER = ord("e"), 0x20
_MICRO_DIGITS = 6
_MONTHS = np.arange("0000-01", "10000-02", dtype="datetime64[M]")
#: The day on which each month of the years 0 to 9999 begins, and its number of days.
_MONTH_DAYS = _MONTHS.astype("datetime64[D]").astype(np.int64)
_MONTH_LENGTHS = np.diff(_MONTH_DAYS)
#: Of each character of a UUID, whether it is a digit (1) or a dash (2).
_CHARACTER_KINDS = np.zeros(256, dtype=np.uint8)
_CHARACTER_KINDS[list(b"0123456789abcdef")] = 1
_CHARACTER_KINDS[ord("-")] = 2
_UUID_CHARACTERS = np.array([1] * 36, dtype=np.uint8)
_UUID_CHARACTERS[[8, 13, 18, 23]] = 2
_YEAR_MAX, _MONTHS_A_YEAR = 9_999, 12


@dataclass(slots=True, kw_only=True)
class Numbers:
    """The numbers of some rows.

    Attributes:
        is_usual: Which rows have a number of at most 63 bits before the point and 18
            digits behind it, without an exponent; zeros have no sign. The other
            attributes hold for these rows only.
        is_negative: Which have a sign.
        whole: The digits before the point, as a number.
        fraction: The digits behind the point, without zeros at the end.
        scale: The number of these digits.
        digits: The number of digits before the point.
        stops: The places behind the numbers.
        canonical_stops: The places behind the last digits that count.
    """

    is_usual: BoolArray
    is_negative: BoolArray
    whole: I64Array
    fraction: I64Array
    scale: I64Array
    digits: I64Array
    stops: I64Array
    canonical_stops: I64Array

    def signed(self, values: I64Array) -> I64Array:
        """Give values the signs of the numbers."""
        if not self.is_negative.any():
            return values
        return np.where(self.is_negative, -values, values)


def read_numbers(cursor: Cursor) -> Numbers:
    """Read the number at each place, if there is one."""
    scan, at = cursor.scan, cursor.at
    first = cursor.bytes()
    is_negative = first == MINUS
    if is_negative.any():
        at = at + is_negative
        first = scan.bytes_at(at)
    whole, digits = read_digits(scan, at)
    # Of nineteen digits, those that do not fit into 63 bits wrap to negative numbers.
    is_usual = (digits > 0) & (digits <= DIGITS_MAX + 1) & (whole >= 0)
    is_usual &= (first != ZERO) | (digits == 1)
    stops = at + digits
    following = scan.bytes_at(stops)
    found = Numbers(
        is_usual=is_usual,
        is_negative=is_negative,
        whole=whole,
        fraction=np.zeros(0, np.int64),
        scale=np.zeros(0, np.int64),
        digits=digits,
        stops=stops,
        canonical_stops=stops,
    )
    has_point = following == DOT
    if has_point.any():
        following = _read_fractions(scan, found, has_point)
    else:
        found.fraction = np.zeros(at.size, np.int64)
        found.scale = found.fraction
    found.is_usual &= (following | _LOWER) != _LOWER_E
    if is_negative.any():
        found.is_usual &= ~is_negative | (whole != 0) | (found.fraction != 0)
    return found


def _read_fractions(
    scan: Scan, found: Numbers, has_point: BoolArray
) -> npt.NDArray[np.uint8]:
    """Read what is behind the points; return the bytes behind the numbers."""
    points = found.stops
    fraction, count = read_digits(scan, points + 1)
    found.is_usual &= ~has_point | ((count > 0) & (count <= DIGITS_MAX))
    fraction[~has_point] = 0
    count[~has_point] = 0
    found.stops = points + has_point + count
    while (has_zero := (count > 0) & (fraction % 10 == 0)).any():
        fraction = np.where(has_zero, fraction // 10, fraction)
        count = count - has_zero
    found.fraction, found.scale = fraction, count
    found.canonical_stops = points + count + (count > 0)
    return scan.bytes_at(found.stops)


def matches(words: WordArray, pattern: bytes) -> BoolArray:
    """Tell which words are of a pattern: its zeros stand for any digit."""
    padded = int.from_bytes(pattern, "little")
    allowed = bytes(0x76 if one == ZERO else 0x7F for one in pattern)
    differing = words ^ np.uint64(padded)
    low = int.from_bytes(b"\x7f" * len(pattern), "little")
    high = int.from_bytes(b"\x80" * len(pattern), "little")
    added = (differing & np.uint64(low)) + np.uint64(int.from_bytes(allowed, "little"))
    matching: BoolArray = ((added | differing) & np.uint64(high)) == 0
    return matching


def two_digits(words: WordArray, at: int) -> I64Array:
    """Return the number of the two digits from a byte of each word on."""
    tens = (words >> np.uint64(8 * at)) & np.uint64(15)
    ones = (words >> np.uint64(8 * at + 8)) & np.uint64(15)
    return (tens * np.uint64(10) + ones).view(np.int64)


def read_dates(scan: Scan, starts: I64Array) -> tuple[I64Array, BoolArray]:
    """Read ``2026-11-26`` at each place.

    Returns:
        The days since 1970 began, and where there is such a day.
    """
    first, last = scan.words_at(starts), scan.words_at(starts + 8)
    is_date = matches(first, b"0000-00-") & matches(last, b"00")
    years = two_digits(first, 0) * 100 + two_digits(first, 2)
    months, days = two_digits(first, 5), two_digits(last, 0)
    is_date &= (years > 0) & (years <= _YEAR_MAX)
    is_date &= (months > 0) & (months <= _MONTHS_A_YEAR)
    index = np.where(is_date, years * _MONTHS_A_YEAR + months - 1, 0)
    is_date &= (days > 0) & (days <= _MONTH_LENGTHS[index])
    return _MONTH_DAYS[index] + days - 1, is_date


def read_moments(
    scan: Scan, starts: I64Array, stops: I64Array, *, is_local: bool
) -> tuple[I64Array, BoolArray]:
    """Read ``2026-11-26T08:16:09.123+01:00`` in each span.

    Returns:
        The microseconds since 1970 began, and where they could be read.
    """
    days, is_moment = read_dates(scan, starts)
    middle, last = scan.words_at(starts + 8), scan.words_at(starts + 16)
    is_moment &= matches(middle, b"00T00:00") & matches(last, b":00")
    hours, minutes = two_digits(middle, 3), two_digits(middle, 6)
    seconds = two_digits(last, 1)
    is_moment &= (hours < 24) & (minutes < 60) & (seconds < 60)  # noqa: PLR2004
    micros = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * MICROS
    at = starts + 19
    has_point = scan.bytes_at(at) == DOT
    if has_point.any():
        fraction, count = read_digits(scan, at + 1)
        is_moment &= ~has_point | ((count > 0) & (count <= _MICRO_DIGITS))
        scale = POWERS[np.clip(_MICRO_DIGITS - count, 0, _MICRO_DIGITS)]
        micros = np.where(has_point, micros + fraction * scale, micros)
        at = np.where(has_point, at + 1 + count, at)
    if is_local:
        return micros, is_moment & (at == stops)
    return _to_utc(scan, micros, is_moment, at, stops)


def find_uuids(scan: Scan, starts: I64Array, stops: I64Array) -> BoolArray:
    """Tell which spans hold a UUID in lower case."""
    is_uuid: BoolArray = stops - starts == _UUID_CHARACTERS.size
    found = scan.bytes_at(starts[:, np.newaxis] + np.arange(_UUID_CHARACTERS.size))
    is_uuid &= (_CHARACTER_KINDS[found] == _UUID_CHARACTERS).all(axis=1)
    return is_uuid


def _to_utc(
    scan: Scan, micros: I64Array, is_moment: BoolArray, at: I64Array, stops: I64Array
) -> tuple[I64Array, BoolArray]:
    is_utc = (scan.bytes_at(at) == ord("Z")) & (at + 1 == stops)
    if is_utc.all():
        return micros, is_moment
    words = scan.words_at(at)
    is_ahead = matches(words, b"+00:00")
    has_offset = (is_ahead | matches(words, b"-00:00")) & (at + 6 == stops)
    hours, minutes = two_digits(words, 1), two_digits(words, 4)
    has_offset &= (hours < 24) & (minutes < 60)  # noqa: PLR2004
    offsets = (hours * 60 + minutes) * 60 * MICROS
    offsets = np.where(is_ahead, offsets, -offsets)
    micros = np.where(has_offset & ~is_utc, micros - offsets, micros)
    is_moment &= is_utc | has_offset
    is_moment &= (micros >= LOWEST_MICROS) & (micros <= HIGHEST_MICROS)
    return micros, is_moment
