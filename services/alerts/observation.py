"""The data that rules judge: one pipeline at one moment of the home's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tallyweir.sinks.postgres.audit import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One pipeline at one moment.

    Attributes:
        observed_at: The moment, by the home database's clock.
        last_sequence: The newest published batch; 0 before the first.
        lag: Offsets yet to read; None when Kafka does not say.
        freshness_s: Seconds that the newest committed event time is behind the clock;
            None before the first event.
        dead_shares: Share of dead letters among the records read, by span.
        in_doubt_s: Seconds since the decision of the oldest batch that is not committed
            in every database; 0 without one.
        headroom_s: Seconds until Kafka deletes the first unread record; infinite when
            nothing is unread, 0 when it is deleted already; None when Kafka does not
            say.
        is_driver_gone: It had a driver, and no driver is connected now.
        paused_s: Seconds since it was paused; None when it is not.
        usages: Usage of its batches by span.
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
