"""The watermark: how far event time has come. It never goes back.

A Kafka partition's watermark is its newest event time less the delay. The
pipeline's is the minimum over the active partitions. A partition is active until the
idle timeout has passed since it was first met, or since its last event. So one quiet
partition does not hold every window open, and the first events of a partition that
begins later are not late.

An event from the future says nothing about the events still to come, so no
partition's clock runs ahead of the database's.

Times are microseconds since 1970, durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.votes import PartitionTally


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClock:
    """Event time and activity of one partition."""

    #: Its newest event time; None until it has had an event.
    event_time_max_us: int | None
    #: When its last event was committed, by the database's clock. Before its first
    #: event: when it was first met. None if that was not recorded.
    active_at_us: int | None

    def is_active(self, *, idle_timeout_us: int, now_us: int) -> bool:
        """Whether it still counts, by the database's clock."""
        return (
            self.active_at_us is not None
            and now_us - self.active_at_us <= idle_timeout_us
        )


#: Clock of a partition whose beginning is noted, but which no batch has covered yet.
_NOT_MET = PartitionClock(event_time_max_us=None, active_at_us=None)


def advance_clock(
    former: PartitionClock | None, event_time_max_us: int | None, *, now_us: int
) -> PartitionClock:
    """Return a partition's clock after a batch.

    Args:
        former: Its clock before; None, or a clock that knows nothing, when this batch
            is the first to meet it.
        event_time_max_us: Its newest event in the batch; None without events.
        now_us: The database's clock, which no event time passes.
    """
    if event_time_max_us is None:
        if former in (None, _NOT_MET):
            return PartitionClock(event_time_max_us=None, active_at_us=now_us)
        return former
    newest_us = min(event_time_max_us, now_us)
    if former is not None and former.event_time_max_us is not None:
        newest_us = max(newest_us, former.event_time_max_us)
    return PartitionClock(event_time_max_us=newest_us, active_at_us=now_us)


def latest_of(clocks: Iterable[PartitionClock]) -> PartitionClock:
    """Return the latest clock among partitions that are read to their end together."""
    return max(
        clocks,
        key=lambda clock: (
            clock.event_time_max_us is not None,
            clock.event_time_max_us or 0,
        ),
    )


def advance_watermark(
    former_us: int | None,
    clocks: Iterable[PartitionClock],
    *,
    delay_us: int,
    idle_timeout_us: int,
    now_us: int,
) -> int | None:
    """Return the pipeline's watermark after a batch; None until there is an event.

    It stays where it was while an active partition has had no event yet, and while
    every partition is idle. In both cases, closing windows would be a guess about
    events still to come.
    """
    active = [
        clock.event_time_max_us
        for clock in clocks
        if clock.is_active(idle_timeout_us=idle_timeout_us, now_us=now_us)
    ]
    times = [time_us for time_us in active if time_us is not None]
    if not active or len(times) < len(active):
        return former_us
    candidate_us = min(times) - delay_us
    return candidate_us if former_us is None else max(former_us, candidate_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRule:
    """How a pipeline's watermark follows its partitions."""

    delay_us: int
    idle_timeout_us: int

    def watermark_after(
        self, former_us: int | None, clocks: Iterable[PartitionClock], *, now_us: int
    ) -> int | None:
        """Return the watermark after a batch; the same at each call.

        Args:
            former_us: The watermark before it.
            clocks: Clocks of all partitions, as ``move_clocks`` leaves them.
            now_us: The database's clock when the batch was planned.
        """
        return advance_watermark(
            former_us,
            clocks,
            delay_us=self.delay_us,
            idle_timeout_us=self.idle_timeout_us,
            now_us=now_us,
        )


def move_clocks(
    before: Mapping[TopicPartition, PartitionClock],
    covered: Iterable[TopicPartition],
    seen: Mapping[TopicPartition, PartitionTally],
    now_us: int,
) -> dict[TopicPartition, PartitionClock]:
    """Return the partitions' clocks after a batch.

    Args:
        before: Their clocks before it.
        covered: The partitions that it covers, with events or without.
        seen: What it held of each partition.
        now_us: The database's clock when it was planned.
    """
    advanced = {
        partition: advance_clock(
            before.get(partition),
            seen[partition].event_time_max_us if partition in seen else None,
            now_us=now_us,
        )
        for partition in covered
    }
    return {**before, **advanced}
