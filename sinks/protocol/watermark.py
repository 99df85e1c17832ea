"""The watermark: how far event time has come, and it never goes back.

A Kafka partition's watermark is its newest event time less the delay. The
pipeline's is the minimum over the active partitions; a partition without new
events for longer than the idle timeout leaves the minimum, so that one quiet
partition does not hold every window open.

Times are microseconds since 1970, durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sinks.protocol.offsets import TopicPartition
from sinks.protocol.votes import PartitionTally


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRule:
    """How a pipeline's watermark follows its partitions."""

    delay_us: int
    idle_timeout_us: int

    def watermark_after(
        self,
        former_us: int | None,
        before: Mapping[TopicPartition, PartitionClock],
        seen: Mapping[TopicPartition, PartitionTally],
        *,
        planned_at_us: int,
    ) -> int | None:
        """Return the watermark after a batch; the same whenever it is asked for.

        Args:
            former_us: The watermark before it.
            before: The partitions' clocks before it.
            seen: What the batch held of each partition.
            planned_at_us: The database's clock when it was planned.
        """
        return advance_watermark(
            former_us,
            move_clocks(before, seen, planned_at_us).values(),
            delay_us=self.delay_us,
            idle_timeout_us=self.idle_timeout_us,
            now_us=planned_at_us,
        )


def move_clocks(
    before: Mapping[TopicPartition, PartitionClock],
    seen: Mapping[TopicPartition, PartitionTally],
    at_us: int,
) -> dict[TopicPartition, PartitionClock]:
    """Return the partitions' clocks after a batch that was planned at a moment."""
    after = dict(before)
    for topic_partition, tally in seen.items():
        if tally.event_time_max_us is None:
            continue
        former = before.get(topic_partition)
        former_us = former.event_time_max_us if former else None
        after[topic_partition] = PartitionClock(
            event_time_max_us=max(
                tally.event_time_max_us,
                tally.event_time_max_us if former_us is None else former_us,
            ),
            active_at_us=at_us,
        )
    return after
