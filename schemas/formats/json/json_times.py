"""Read dates and moments exactly: from texts of ISO 8601, or from counts of a unit.

Moments are whole microseconds since 1970 began, in UTC or, for a time without a zone,
in local time. Dates and moments lie in the years 0001 to 9999.
"""

from __future__ import annotations

import datetime as dt
import re
from zoneinfo import ZoneInfo

from tallyweir.schemas.formats.json.json_canonical import digits_of
from tallyweir.schemas.schema_tree import NUMBER_BOUNDS

MICROS = 1_000_000
_MICRO_DIGITS = 6
#: The power of ten that makes microseconds of each unit.
UNIT_POWERS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
LOWEST_MICROS, HIGHEST_MICROS = NUMBER_BOUNDS["timestamp-micros"]
#: A count with more digits before its point lies outside of all years.
_COUNT_DIGITS_MAX = 20

EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall clocks are counted from here
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})"
    r"(?::([0-9]{2})(?:[.,]([0-9]{1,1000}))?)?"
    r"([Zz]|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
)
_HOURS, _MINUTES = 24, 60
_EXAMPLE = "2026-11-26T08:16:09Z"


class UnreadableTimeError(ValueError):
    """A text or a number is no time of its field; the message says why."""


class TimeRangeError(ValueError):
    """A time that the column cannot hold; the message says why."""


def read_date(text: str) -> dt.date:
    """Read ``2026-11-26``.

    Raises:
        UnreadableTimeError: It is written otherwise.
        TimeRangeError: There is no such day.
    """
    found = _DATE.fullmatch(text)
    if found is None:
        raise UnreadableTimeError("expected a date such as 2026-11-26")
    try:
        return dt.date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError as exc:
        raise TimeRangeError("there is no such day") from exc


def read_moment(
    text: str, *, zone: str | None, is_local: bool, is_truncated: bool
) -> int:
    """Read a text such as ``2026-11-26T08:16:09.123+01:00`` as microseconds.

    Args:
        text: The text; seconds may be missing, a space may stand for the T.
        zone: The zone of a text without an offset; empty if none is declared.
        is_local: Whether the text must not have an offset.
        is_truncated: Whether digits beyond microseconds are cut off.

    Raises:
        UnreadableTimeError: It is written otherwise.
        TimeRangeError: There is no such time, or it needs more digits.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise UnreadableTimeError(f"expected a time such as {_EXAMPLE}")
    fraction = _micros_of(found[7] or "", is_truncated=is_truncated)
    try:
        parts = [int(part or 0) for part in found.groups()[:6]]
        year, month, day, hour, minute, second = parts
        wall = dt.datetime(year, month, day, hour, minute, second, fraction)  # noqa: DTZ001
    except ValueError as exc:
        raise TimeRangeError("there is no such time") from exc
    micros = (wall - _EPOCH) // dt.timedelta(microseconds=1)
    if is_local:
        if found[8] is not None:
            raise UnreadableTimeError("expected a time without an offset")
        return micros
    if found[8] is not None:
        return _within(micros - _offset_micros(found))
    if not zone:
        raise UnreadableTimeError("expected an offset such as Z or +01:00")
    return _within(micros - _zone_micros(wall, zone))


def read_count(token: str, unit: str, *, is_truncated: bool) -> int:
    """Read a number of a unit since 1970 began as microseconds.

    Raises:
        TimeRangeError: It lies outside of all years, or needs more digits.
    """
    number = digits_of(token)
    exponent = number.exponent + UNIT_POWERS[unit]
    digits = number.digits
    if len(digits) + exponent > _COUNT_DIGITS_MAX:
        raise TimeRangeError("outside of the years 1 to 9999")
    if exponent < 0 and digits:
        if not is_truncated:
            raise TimeRangeError("not a whole number of microseconds")
        # Truncation goes down, as it does for texts before 1970.
        whole = int(digits[:exponent] or 0)
        return _within(-whole - 1 if number.is_negative else whole)
    micros = int(digits or 0) * 10**exponent if digits else 0
    return _within(-micros if number.is_negative else micros)


def datetime_of(micros: int, *, is_local: bool) -> dt.datetime:
    """Return a moment as Python has it, in UTC unless it is local."""
    wall = _EPOCH + dt.timedelta(microseconds=micros)
    return wall if is_local else wall.replace(tzinfo=dt.UTC)


def micros_of(moment: dt.datetime) -> int:
    """Return the microseconds of a moment, in its own wall clock if it has no zone."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def _micros_of(fraction: str, *, is_truncated: bool) -> int:
    beyond = fraction[_MICRO_DIGITS:].strip("0")
    if beyond and not is_truncated:
        raise TimeRangeError("not a whole number of microseconds")
    return int(fraction[:_MICRO_DIGITS].ljust(_MICRO_DIGITS, "0"))


def _offset_micros(found: re.Match[str]) -> int:
    if found[9] is None:
        return 0
    hours, minutes = int(found[10]), int(found[11] or 0)
    if hours >= _HOURS or minutes >= _MINUTES:
        raise TimeRangeError("there is no such offset")
    micros = (hours * 60 + minutes) * 60 * MICROS
    return -micros if found[9] == "-" else micros


def _zone_micros(wall: dt.datetime, zone: str) -> int:
    place = ZoneInfo(zone)
    try:
        offsets = [wall.replace(tzinfo=place, fold=fold).utcoffset() for fold in (0, 1)]
    except OverflowError as exc:
        raise TimeRangeError("outside of the years 1 to 9999") from exc
    if offsets[0] != offsets[1]:
        raise TimeRangeError(f"missing or there twice in {zone}")
    assert offsets[0] is not None, "a zone has an offset at any time"
    return offsets[0] // dt.timedelta(microseconds=1)


def _within(micros: int) -> int:
    if not LOWEST_MICROS <= micros <= HIGHEST_MICROS:
        raise TimeRangeError("outside of the years 1 to 9999")
    return micros
