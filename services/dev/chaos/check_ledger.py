"""Invariants about the ledger: batches are dense, and decided once by the right driver.

Pure, like ``check_records``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tallyweir.services.dev.chaos.check_records import Sent
from tallyweir.services.dev.chaos.observed_run import LedgerRange, ObservedRun
from tallyweir.services.dev.chaos.sent_log import Place
from tallyweir.services.dev.chaos.snapshots import SeenBatch
from tallyweir.services.dev.chaos.supervisor import PublishedBatch
from tallyweir.sinks.postgres.audit import Check
from tallyweir.sinks.postgres.audit.receipt import judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """Evidence of decisions from outside of the ledger.

    Attributes:
        seen: Batches that snapshots showed during the run.
        changed: Batches that two snapshots showed differently.
        told: Batches that drivers reported as published.
    """

    seen: Mapping[int, SeenBatch]
    changed: Sequence[str]
    told: Sequence[PublishedBatch]


def check_ledger(
    sent: Sent, found: ObservedRun, witnesses: Witnesses
) -> tuple[Check, ...]:
    """Compare the ledger with itself, the tables, the records and the witnesses."""
    return (
        _check_offsets(found),
        _check_one_decision(found),
        _check_decisions(found, witnesses),
        _check_epochs(found, witnesses),
        _check_conservation(sent, found),
    )


def _check_offsets(found: ObservedRun) -> Check:
    """I5: ranges follow one another to the stored offset; sequences are dense."""
    violations = []
    expected: dict[int, int] = defaultdict(int)
    for part in found.ranges:
        if part.from_offset != expected[part.partition]:
            violations.append(
                f"batch {part.sequence} begins partition {part.partition} at "
                f"{part.from_offset}, expected {expected[part.partition]}"
            )
        if part.until_offset < part.from_offset:
            violations.append(f"batch {part.sequence} goes back on {part.partition}")
        expected[part.partition] = part.until_offset
    violations += [
        f"partition {partition} stands at {offset}, its ranges end at "
        f"{expected[partition]}"
        for partition, offset in sorted(found.positions.items())
        if offset != expected[partition]
    ]
    sequences = [batch.sequence for batch in found.batches]
    if sequences != list(range(1, found.last_sequence + 1)):
        violations.append(
            f"{len(sequences)} batches, the pipeline has counted {found.last_sequence}"
        )
    return judge(
        "I5_offsets_monotone_sequences_dense",
        checked=len(found.ranges) + len(sequences),
        unit="ranges and batches",
        violations=violations,
    )


def _check_one_decision(found: ObservedRun) -> Check:
    """I6: one decision per batch of a driver, and one range per offset."""
    keys = Counter((batch.epoch, batch.spark_batch_id) for batch in found.batches)
    violations = [
        f"batch {batch} of epoch {epoch} was decided {count} times"
        for (epoch, batch), count in keys.items()
        if count != 1
    ]
    for partition, ranges in _by_partition(found.ranges).items():
        violations += [
            f"batches {former.sequence} and {latter.sequence} both decided offsets of "
            f"partition {partition} before {former.until_offset}"
            for former, latter in pairwise(ranges)
            if latter.from_offset < former.until_offset
        ]
    return judge(
        "I6_one_decision_per_batch",
        checked=len(found.batches),
        unit="batches",
        violations=violations,
    )


def _check_decisions(found: ObservedRun, witnesses: Witnesses) -> Check:
    """I7: all rows belong to a decided batch, and no decided batch is ever lost."""
    decided = {batch.sequence: batch for batch in found.batches}
    finder = RangeFinder(found.ranges)
    violations = [
        f"{place[0]}:{place[1]} is in {table}, in no batch of the ledger"
        for table, place in _all_places(found)
        if finder.find(place) is None
    ]
    for seen in witnesses.seen.values():
        batch = decided.get(seen.sequence)
        kept = batch is not None and (batch.epoch, batch.spark_batch_id) == (
            seen.epoch,
            seen.spark_batch_id,
        )
        if not kept:
            violations.append(f"{seen} was seen in the ledger, which now has {batch}")
    violations += witnesses.changed
    for told in witnesses.told:
        batch = decided.get(told.sequence)
        if batch is None or batch.epoch != told.epoch:
            violations.append(f"{told} was reported, the ledger has {batch}")
    return judge(
        "I7_decided_and_there_are_the_same",
        checked=len(found.rows) + len(witnesses.seen) + len(witnesses.told),
        unit="rows and sightings",
        violations=violations,
    )


def _check_epochs(found: ObservedRun, witnesses: Witnesses) -> Check:
    """I8: once an epoch has published, no older one does."""
    violations = [
        f"batch {latter.sequence} of epoch {latter.epoch} follows batch "
        f"{former.sequence} of epoch {former.epoch}"
        for former, latter in pairwise(found.batches)
        if latter.epoch < former.epoch
    ]
    claimed = set(found.claims)
    violations += [
        f"batch {batch.sequence} has epoch {batch.epoch}, never claimed"
        for batch in found.batches
        if batch.epoch not in claimed
    ]
    newest = 0
    for told in sorted(witnesses.told, key=lambda one: one.sequence):
        if told.epoch < newest:
            violations.append(f"{told} was reported after epoch {newest} had published")
        newest = max(newest, told.epoch)
    return judge(
        "I8_stale_epochs_never_publish",
        checked=len(found.batches) + len(witnesses.told),
        unit="batches",
        violations=violations,
    )


def _check_conservation(sent: Sent, found: ObservedRun) -> Check:
    """I10: a batch read what Kafka had in its ranges, and accounts for all of it."""
    finder = RangeFinder(found.ranges)
    counts: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)

    def count(what: str, places: Iterable[Place]) -> None:
        for place in places:
            part = finder.find(place)
            if part is not None:
                counts[part.sequence, part.partition][what] += 1

    count("read", sent)
    count("committed", (row.place for row in found.rows))
    count("duplicate", (place for place, _ in found.duplicates))
    count("dead", (place for place, _ in found.dead_letters))
    count("other", found.other_places)
    violations = []
    for part in found.ranges:
        counted = counts[part.sequence, part.partition]
        violations += [
            f"batch {part.sequence} on partition {part.partition}: ledger has "
            f"{getattr(part, what)} {what}, counted {counted[what]}"
            for what in ("read", "committed", "duplicate", "dead", "other")
            if getattr(part, what) != counted[what]
        ]
        whole = part.committed + part.duplicate + part.dead + part.other
        if part.read != whole:
            violations.append(
                f"batch {part.sequence} on partition {part.partition}: {part.read} "
                f"read, {whole} accounted for"
            )
    return judge(
        "I10_conservation_per_batch",
        checked=len(found.ranges),
        unit="ranges",
        violations=violations,
    )


class RangeFinder:
    """Finds the ledger's range that holds a place."""

    def __init__(self, ranges: Sequence[LedgerRange]) -> None:
        self._ranges = _by_partition(ranges)
        self._starts = {
            partition: [part.from_offset for part in parts]
            for partition, parts in self._ranges.items()
        }

    def find(self, place: Place) -> LedgerRange | None:
        partition, offset = place
        index = bisect_right(self._starts.get(partition, []), offset) - 1
        if index < 0:
            return None
        part = self._ranges[partition][index]
        return part if offset < part.until_offset else None


def _by_partition(ranges: Sequence[LedgerRange]) -> dict[int, list[LedgerRange]]:
    """Sort the ranges that are not empty by their first offset, for each partition."""
    parts: dict[int, list[LedgerRange]] = defaultdict(list)
    for part in ranges:
        if part.until_offset > part.from_offset:
            parts[part.partition].append(part)
    for several in parts.values():
        several.sort(key=lambda part: part.from_offset)
    return parts


def _all_places(found: ObservedRun) -> Iterator[tuple[str, Place]]:
    yield from ((row.database, row.place) for row in found.rows)
    yield from (("duplicate_event", place) for place, _ in found.duplicates)
    yield from (("dead_letter", place) for place, _ in found.dead_letters)
