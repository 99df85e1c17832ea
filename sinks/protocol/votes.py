"""What tasks report after phases one and 2b, and the conservation law over a batch.

A vote is the only thing that makes staged rows publishable. Rows of an attempt
whose vote never reached the driver (a zombie, a speculative copy, a retried task)
stay in staging, tagged with that attempt, and are dropped with it.

In phase 2b, functions work on keyed state. They get the events that phase one staged
and voted for. So their input is the same at every try, even if a transform would answer
differently another time.

Invariants, over the votes of one batch::

    read == committed + duplicate + dead + late + expired + filtered
    read <= until_offset - from_offset         per partition, as the law above
    events consumed == events staged           per stateful output
    an attempt votes once, in one phase
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.measures import (
    NOTHING_MEASURED,
    Measures,
    cpu_of_tasks,
    sum_measures,
)
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.samples import NOTHING_SAMPLED, Samples, join_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounts:
    """How many events were read, and their fates.

    The task counts ``read`` where rows arrive and the other classes where rows leave,
    so a row lost in between breaks the law and does not stay hidden.
    """

    #: Records that arrived from Kafka.
    read: int = 0
    #: Taken by at least one output.
    committed: int = 0
    #: Second copies of an event that was committed or comes earlier in the batch.
    duplicate: int = 0
    #: Dead letters: undecodable, invalid, in conflict, or rejected by Postgres.
    dead: int = 0
    #: Behind the watermark for every output.
    late: int = 0
    #: Older than the seen-ID horizon, hence impossible to check for repeats.
    expired: int = 0
    #: Excluded by the pipeline's own conditions.
    filtered: int = 0

    @property
    def is_all_dead(self) -> bool:
        """Whether records were read and every one of them became a dead letter."""
        return 0 < self.read == self.dead

    def __add__(self, other: EventCounts) -> EventCounts:
        return EventCounts(
            **{
                f.name: getattr(self, f.name) + getattr(other, f.name)
                for f in fields(self)
            }
        )

    @property
    def accounted(self) -> int:
        return (
            self.committed
            + self.duplicate
            + self.dead
            + self.late
            + self.expired
            + self.filtered
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTally:
    """What one task, or all tasks together, saw of one Kafka partition."""

    counts: EventCounts
    offset_min: int
    offset_max: int
    #: Microseconds since 1970 of the newest valid event; None when there was none.
    event_time_max_us: int | None = None

    def __add__(self, other: PartitionTally) -> PartitionTally:
        times = [
            t
            for t in (self.event_time_max_us, other.event_time_max_us)
            if t is not None
        ]
        return PartitionTally(
            counts=self.counts + other.counts,
            offset_min=min(self.offset_min, other.offset_min),
            offset_max=max(self.offset_max, other.offset_max),
            event_time_max_us=max(times, default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTally:
    """What one output of the pipeline received.

    ``events`` counts events; ``rows`` counts the rows staged for the output. An append
    output has one row per event, a window output one row per group.
    """

    events: int = 0
    rows: int = 0
    #: Events that came too late for this output.
    late: int = 0
    #: Events merged into windows that the watermark had already passed.
    revised: int = 0
    #: Sum of the Kafka offsets of its events; None if the output has no condition, and
    #: so takes every committed event.
    checksum: int | None = None

    def __add__(self, other: OutputTally) -> OutputTally:
        return OutputTally(
            events=self.events + other.events,
            rows=self.rows + other.rows,
            late=self.late + other.late,
            revised=self.revised + other.revised,
            checksum=None
            if self.checksum is None and other.checksum is None
            else (self.checksum or 0) + (other.checksum or 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One task attempt's statement of what it staged.

    ``staged`` maps a staging table to the number of rows that this attempt copied
    into it; publishing moves exactly that many or nothing.
    """

    attempt: Attempt
    partitions: Mapping[TopicPartition, PartitionTally]
    staged: Mapping[str, int]
    outputs: Mapping[str, OutputTally]
    #: Sum of the kafka offsets of the committed events. The ledger keeps it, and
    #: ``verify`` recomputes it from the result tables.
    checksum: int = 0
    #: Seen-ID buckets that this attempt staged runs for, with the IDs in those runs.
    buckets: Mapping[int, int] = field(default_factory=dict)
    #: What this attempt has cost.
    measures: Measures = NOTHING_MEASURED
    #: Those of the rows that it staged that people may look at.
    samples: Samples = NOTHING_SAMPLED
    #: Ids of schemas that it must know first; then it has staged and counted nothing.
    wanted_schemas: frozenset[int] = frozenset()

    @property
    def ids(self) -> int:
        """IDs in its runs."""
        return sum(self.buckets.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTally:
    """The votes of a batch added up and found consistent."""

    partitions: Mapping[TopicPartition, PartitionTally]
    staged: Mapping[str, int]
    outputs: Mapping[str, OutputTally]
    attempts: tuple[Attempt, ...]
    checksum: int
    #: Seen-ID buckets that have runs, with the IDs in those runs.
    buckets: Mapping[int, int] = field(default_factory=dict)
    #: The watermark by which phase 2b fired timers; None if the batch had no phase 2b.
    fired_through_us: int | None = None
    measures: Measures = NOTHING_MEASURED
    samples: Samples = NOTHING_SAMPLED

    @property
    def counts(self) -> EventCounts:
        return sum((p.counts for p in self.partitions.values()), EventCounts())


#: The tally of phase one for a tick.
NOTHING_STAGED = BatchTally(
    partitions={}, staged={}, outputs={}, attempts=(), checksum=0
)


def tally_votes(
    votes: Sequence[Vote], ranges: Sequence[OffsetRange], *, records_read: int
) -> BatchTally:
    """Add up the votes of one batch and check the conservation law.

    Args:
        votes: All votes that reached the driver, one per task of the stage.
        ranges: What the batch was planned to cover.
        records_read: Records that Spark's source delivered, counted before the
            shuffle and independently of the votes.

    Raises:
        FatalError: ``CONSERVATION_BROKEN`` when an event is unaccounted for, was
            seen outside the planned ranges, or was lost or doubled on the way from
            the source to the tasks.
    """
    partitions: dict[TopicPartition, PartitionTally] = {}
    staged: Counter[str] = Counter()
    outputs: dict[str, OutputTally] = {}
    buckets: Counter[int] = Counter()
    for vote in votes:
        buckets.update(vote.buckets)
        for topic_partition, seen in vote.partitions.items():
            former = partitions.get(topic_partition)
            partitions[topic_partition] = seen if former is None else former + seen
        staged.update(vote.staged)
        for output, tally in vote.outputs.items():
            outputs[output] = outputs.get(output, OutputTally()) + tally
    attempts = tuple(sorted(vote.attempt for vote in votes))
    if len(set(attempts)) != len(attempts):
        raise _broken(f"attempts {attempts} voted more than once")
    batch = BatchTally(
        partitions=partitions,
        staged=staged,
        outputs=outputs,
        attempts=attempts,
        checksum=sum(vote.checksum for vote in votes),
        buckets=buckets,
        measures=sum_measures(vote.measures for vote in votes),
        samples=join_samples(vote.samples for vote in votes),
    )
    _check_conservation(batch, ranges, records_read)
    return batch


def _check_conservation(
    batch: BatchTally, ranges: Sequence[OffsetRange], records_read: int
) -> None:
    planned = {r.topic_partition: r for r in ranges}
    for topic_partition, seen in batch.partitions.items():
        counts = seen.counts
        if counts.read != counts.accounted:
            raise _broken(
                f"{topic_partition}: {counts.read} read, {counts.accounted} accounted"
            )
        covered = planned.get(topic_partition)
        if covered is None:
            raise _broken(f"{topic_partition} was read but not planned")
        if not (
            covered.from_offset <= seen.offset_min
            and seen.offset_max < covered.until_offset
        ):
            raise _broken(
                f"offsets {seen.offset_min} to {seen.offset_max} outside of {covered}"
            )
        if counts.read > covered.length:
            raise _broken(f"{counts.read} records read in {covered}")
    if batch.counts.read != records_read:
        raise _broken(
            f"the source delivered {records_read} records, "
            f"the tasks saw {batch.counts.read}"
        )


def _broken(saw: str) -> FatalError:
    return FatalError(
        "CONSERVATION_BROKEN",
        saw=f"{saw}.",
        why="An event is unaccounted for; nothing of this batch was published.",
        fix="Restart the driver, and report this if it happens again.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedVote:
    """One task attempt's statement of the keys that it worked on.

    Attributes:
        attempt: The attempt that votes.
        consumed: Number of staged events that functions were given, by staging table.
            Every stateful output is listed, with 0 if it had no events.
        staged: Number of rows that this attempt copied, by staging table: results,
            changes of state and changes of timers.
        rows: Number of result rows, by output.
        measures: What this attempt has cost.
        samples: Those of its result rows that people may look at.
    """

    attempt: Attempt
    consumed: Mapping[str, int]
    staged: Mapping[str, int]
    rows: Mapping[str, int]
    measures: Measures = NOTHING_MEASURED
    samples: Samples = NOTHING_SAMPLED


def tally_keyed_votes(
    tally: BatchTally, votes: Sequence[KeyedVote], *, watermark_us: int | None
) -> BatchTally:
    """Add the votes of phase 2b to what phase one voted for.

    Raises:
        RetryableError: ``STAGED_ROWS_MISSING``: staged events were gone, as after a
            crash of the server, or were not the ones that were voted for.
        FatalError: ``CONSERVATION_BROKEN``: an attempt voted twice.
    """
    attempts = (*tally.attempts, *sorted(vote.attempt for vote in votes))
    if len(set(attempts)) != len(attempts):
        raise _broken(f"attempts {attempts} voted more than once")
    staged = Counter(tally.staged)
    outputs = dict(tally.outputs)
    consumed: Counter[str] = Counter()
    for vote in votes:
        consumed.update(vote.consumed)
        staged.update(vote.staged)
        for table, rows in vote.rows.items():
            outputs[table] = outputs.get(table, OutputTally()) + OutputTally(rows=rows)
    for table, events in consumed.items():
        voted = tally.staged.get(table, 0)
        # After a restore, a task of another driver with the same epoch may add rows.
        if events != voted:
            raise RetryableError(
                "STAGED_ROWS_MISSING",
                saw=f"The tasks voted for {voted} rows of {table}; staging holds "
                f"{events}.",
                why="A crash of the server empties the staging tables.",
                fix="Nothing to do: the batch is staged again.",
            )
    return replace(
        tally,
        attempts=attempts,
        staged=staged,
        outputs=outputs,
        fired_through_us=watermark_us,
        measures=tally.measures + _measures_of(votes),
        samples=join_samples((tally.samples, *(vote.samples for vote in votes))),
    )


def _measures_of(votes: Sequence[KeyedVote]) -> Measures:
    measures = [vote.measures for vote in votes]
    return sum_measures([*measures, cpu_of_tasks(measures)])
