"""What a snapshot must show: whole batches, and each record that Kafka had, once.

A snapshot is one REPEATABLE READ snapshot of the home database, followed by one of each
participant. For each partition, below the offset that is visible everywhere, it must
show::

    result rows == ledger's committed      (of all databases together)
    duplicates  == ledger's duplicate
    dead letters == ledger's dead
    events in the windows == ledger's committed, over all partitions
    nothing at or above the home database's next offset

Once everything is sent, the counts and the sums of offsets are also compared with what
the broker had at those offsets (``judge_against_sent``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tallyweir.services.dev.chaos.sent_log import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one snapshot shows of one partition, from ``floor`` up to ``until``.

    Attributes:
        partition: A partition of the topic.
        floor: Offset from which rows were counted.
        until: Offset below which rows were counted.
        found: Number of rows of results, duplicates and dead letters.
        ledger: The ledger's counts of the same three.
        offset_sum: Sum of the offsets of all rows found.
        beyond: Number of rows at or above the home database's next offset.
    """

    partition: int
    floor: int
    until: int
    found: tuple[int, int, int]
    ledger: tuple[int, int, int]
    offset_sum: int
    beyond: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one snapshot shows.

    Attributes:
        spans: The spans of all partitions.
        window_events: Number of events that the windows hold.
        committed: Number of events that the ledger counts as committed.
    """

    spans: tuple[Span, ...]
    window_events: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBatch:
    """A batch of the ledger, as a snapshot showed it."""

    sequence: int
    epoch: int
    spark_batch_id: int


def floors_below(
    floors: Mapping[int, int], visible: Mapping[int, int]
) -> dict[int, int]:
    """Lower the floors to what is visible, by partition.

    Less may be visible than before. Which batches are committed in every database is
    recorded without waiting for the home server's disk. So a crash of the server may
    lose the last of these records, and a driver or the resolver makes them again.
    """
    return {
        partition: min(floors.get(partition, 0), until)
        for partition, until in visible.items()
    }


def judge_snapshot(snapshot: Snapshot) -> list[str]:
    """Say where a snapshot shows only a part of a batch."""
    violations = []
    for span in snapshot.spans:
        where = f"partition {span.partition}, offsets {span.floor}..{span.until}"
        if span.found != span.ledger:
            violations.append(
                f"{where}: (rows, duplicates, dead) {span.found}, the ledger says "
                f"{span.ledger}"
            )
        if span.beyond:
            violations.append(f"{where}: {span.beyond} rows beyond the next offset")
    if snapshot.window_events != snapshot.committed:
        violations.append(
            f"the windows hold {snapshot.window_events} events, the ledger has "
            f"committed {snapshot.committed}"
        )
    return violations


def judge_against_sent(
    snapshots: Sequence[Snapshot], sent: Mapping[Place, object]
) -> list[str]:
    """Say which snapshots lack a record that Kafka had, or hold another one."""
    offsets: dict[int, list[int]] = {}
    for partition, offset in sorted(sent):
        offsets.setdefault(partition, []).append(offset)
    sums = {
        partition: [0, *accumulate(several)] for partition, several in offsets.items()
    }
    violations = []
    for snapshot in snapshots:
        for span in snapshot.spans:
            several = offsets.get(span.partition, [])
            first = bisect_left(several, span.floor)
            last = bisect_left(several, span.until)
            prefix = sums.get(span.partition, [0])
            expected = last - first, prefix[last] - prefix[first]
            found = sum(span.found), span.offset_sum
            if found != expected:
                violations.append(
                    f"partition {span.partition}, offsets {span.floor}..{span.until}: "
                    f"{found[0]} records with offset sum {found[1]}, Kafka had "
                    f"{expected[0]} with {expected[1]}"
                )
    return violations
