"""Plans and votes as a driver and its tasks would make them, for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tallyweir.sinks.protocol.identity import Attempt, BatchKey, Epoch, SparkBatchId
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, PlanBasis, Progress
from tallyweir.sinks.protocol.votes import (
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
)

#: The append table that every home under test publishes to, and its staging table.
RESULTS = "results"

#: Staging table of keyed state: each row is a key and its count.
KEYED = "keyed_state"

#: Number of keys that the records are spread over.
KEYS = 3

#: The key that counts ticks.
TICKS = KEYS

#: Name of the home's own publish transaction, for routing.
HOME = "home"

#: Kafka's id of every topic in these tests.
TOPIC_ID = "id-of-the-topic"

#: Where a record stands in Kafka.
Position = tuple[TopicPartition, int]

#: The event at offset n happened n seconds after this.
EVENT_TIME_START_US = 1_700_000_000_000_000
#: Long after the events of every test, as a server's clock is.
PLANNED_AT_US = EVENT_TIME_START_US + 10**14


def event_time_us(offset: int) -> int:
    """Return when the event at an offset happened."""
    return EVENT_TIME_START_US + offset * 1_000_000


def positions_of(ranges: Iterable[OffsetRange]) -> list[Position]:
    """List every offset of some ranges, as if each held a record."""
    return [
        (r.topic_partition, offset)
        for r in ranges
        for offset in range(r.from_offset, r.until_offset)
    ]


def plan_batch(
    progress: Progress,
    lengths: Mapping[TopicPartition, int],
    *,
    epoch: Epoch,
    spark_batch_id: int | None = 0,
) -> BatchPlan:
    """Plan a batch that starts where ``progress`` stands.

    Args:
        progress: Where the pipeline stands.
        lengths: Number of offsets that the batch covers in each partition.
        epoch: The epoch of its driver.
        spark_batch_id: Spark's number for it; None for a tick.
    """
    starts = {
        topic_partition: position.next_offset
        for topic_partition, position in progress.positions.items()
    }
    ranges = tuple(
        OffsetRange(
            topic_partition=topic_partition,
            from_offset=starts.get(topic_partition, 0),
            until_offset=starts.get(topic_partition, 0) + length,
        )
        for topic_partition, length in lengths.items()
    )
    return plan_upon(progress.basis, ranges, epoch=epoch, spark_batch_id=spark_batch_id)


def plan_upon(
    basis: PlanBasis,
    ranges: Sequence[OffsetRange],
    *,
    epoch: Epoch,
    spark_batch_id: int | None = 0,
) -> BatchPlan:
    """Plan a batch of some offsets, wherever the pipeline stands by then.

    Args:
        basis: The state that the batch before it leaves.
        ranges: The offsets that it covers.
        epoch: The epoch of its driver.
        spark_batch_id: Spark's number for it; None for a tick.
    """
    return BatchPlan(
        key=BatchKey(
            epoch=epoch,
            spark_batch_id=None
            if spark_batch_id is None
            else SparkBatchId(spark_batch_id),
        ),
        ranges=ranges,
        watermark_us=basis.watermark_us,
        after_sequence=basis.after_sequence,
        clocks=basis.clocks,
        planned_at_us=PLANNED_AT_US,
        topic_ids={covered.topic_partition.topic: TOPIC_ID for covered in ranges},
    )


def staged_for(branch: str) -> str:
    """Name the staging table of a branch's share of ``RESULTS``."""
    return RESULTS if branch == HOME else f"{RESULTS}@{branch}"


def key_of(position: Position) -> int:
    """Return the key that a record belongs to."""
    return position[1] % KEYS


def in_home(position: Position) -> str:
    """Route every record to the home's own publish transaction."""
    del position
    return HOME


def vote_on(
    attempt: int,
    staged: Iterable[Position],
    *,
    dead: Iterable[Position] = (),
    branch_of: Callable[[Position], str] = in_home,
) -> Vote:
    """Vote for some staged rows of ``RESULTS`` and some dead letters.

    Dead letters are only counted here, not staged.
    """
    staged = list(staged)
    shares = Counter(staged_for(branch_of(position)) for position in staged)
    dead = list(dead)
    partitions = {}
    for topic_partition in {position[0]: None for position in [*staged, *dead]}:
        good = [offset for tp, offset in staged if tp == topic_partition]
        bad = [offset for tp, offset in dead if tp == topic_partition]
        partitions[topic_partition] = PartitionTally(
            counts=EventCounts(
                read=len(good) + len(bad), committed=len(good), dead=len(bad)
            ),
            offset_min=min(good + bad),
            offset_max=max(good + bad),
            event_time_max_us=event_time_us(max(good)) if good else None,
        )
    rows = len(staged)
    return Vote(
        attempt=Attempt(attempt),
        partitions=partitions,
        staged=dict(shares) or {RESULTS: 0},
        outputs={RESULTS: OutputTally(events=rows, rows=rows)},
        checksum=sum(offset for _, offset in staged),
    )
