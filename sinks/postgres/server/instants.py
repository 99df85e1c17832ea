"""Microseconds since 1970, which the protocol counts in, and Postgres' timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@overload
def to_datetime(instant_us: int) -> datetime: ...
@overload
def to_datetime(instant_us: None) -> None: ...
@overload
def to_datetime(instant_us: int | None) -> datetime | None: ...
def to_datetime(instant_us: int | None) -> datetime | None:
    """Turn microseconds into an aware timestamp, exactly."""
    return None if instant_us is None else _EPOCH + instant_us * _MICROSECOND


@overload
def to_microseconds(instant: datetime) -> int: ...
@overload
def to_microseconds(instant: None) -> None: ...
@overload
def to_microseconds(instant: datetime | None) -> int | None: ...
def to_microseconds(instant: datetime | None) -> int | None:
    """Turn an aware timestamp into microseconds, exactly."""
    return None if instant is None else (instant - _EPOCH) // _MICROSECOND
