"""Microseconds since 1970, which the protocol counts in, and Postgres' timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_datetime(instant_us: int | None) -> datetime | None:
    """Turn microseconds into an aware timestamp, exactly."""
    return None if instant_us is None else _EPOCH + instant_us * _MICROSECOND


def to_microseconds(instant: datetime | None) -> int | None:
    """Turn an aware timestamp into microseconds, exactly."""
    return None if instant is None else (instant - _EPOCH) // _MICROSECOND
