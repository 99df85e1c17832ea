"""The watermark: how far event time has come, and it never goes back.

A Kafka partition's watermark is its newest event time less the delay. The
pipeline's is the minimum over the active partitions; a partition without new
events for longer than the idle timeout leaves the minimum, so that one quiet
partition does not hold every window open.

Times are microseconds since 1970, durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClock:
    """Event time and activity of one partition."""

    event_time_max_us: int | None
    #: When, by the database's clock, its last event was committed.
    active_at_us: int | None


def advance_watermark(
    former_us: int | None,
    clocks: Iterable[PartitionClock],
    *,
    delay_us: int,
    idle_timeout_us: int,
    now_us: int,
) -> int | None:
    """Return the pipeline's watermark after a batch; None until there is an event.

    Should every partition be idle, the watermark stays where it was: closing
    windows without new events would be a guess about the ones still to come.
    """
    active = [
        clock.event_time_max_us
        for clock in clocks
        if clock.event_time_max_us is not None
        and clock.active_at_us is not None
        and now_us - clock.active_at_us <= idle_timeout_us
    ]
    if not active:
        return former_us
    candidate_us = min(active) - delay_us
    return candidate_us if former_us is None else max(former_us, candidate_us)
