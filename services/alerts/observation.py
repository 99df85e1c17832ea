"""What rules look at: one pipeline at one moment of the home database's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sinks.postgres.audit import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One pipeline at one moment.

    Attributes:
        observed_at: By the home database's clock.
        last_sequence: The newest published batch; 0 before the first.
        lag: Offsets yet to read; None when Kafka does not say.
        freshness_s: By how much the newest committed event time is behind the clock;
            None before the first event.
        dead_shares: Dead letters among the records read, by the span looked at.
        in_doubt_s: Since the oldest batch was decided that is not committed in every
            database; 0 without one.
        headroom_s: Until Kafka deletes the first unread record; infinite when nothing
            is unread, 0 when it is deleted already; None when Kafka does not say.
        is_driver_gone: Somebody has driven it, and nobody does.
        paused_s: Since it was paused; None when it is not.
        usages: What its batches have used, by the span looked at.
    """

    pipeline: str
    observed_at: datetime
    last_sequence: int
    lag: int | None
    freshness_s: float | None
    dead_shares: Mapping[timedelta, float]
    in_doubt_s: float
    headroom_s: float | None
    is_driver_gone: bool
    paused_s: float | None
    usages: Mapping[timedelta, Usage]
