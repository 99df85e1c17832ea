"""The invariants of the tables: records, windows, the ledger, and its branches.

Pure functions that compare what was sent with what was found. Each record counts once,
as what it is, and nothing else counts; windows equal a recount of the events; batches
are dense, and decided once by the right driver; of a batch over several databases all
branches are committed, or none.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tallyweir.services.dev.chaos.observed_run import (
    LedgerRange,
    ObservedRun,
    WindowKey,
    WindowTotals,
)
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.services.dev.chaos.sent_log import Place, SentRecord
from tallyweir.services.dev.chaos.snapshots import SeenBatch
from tallyweir.services.dev.chaos.supervisor import PublishedBatch
from tallyweir.services.dev.chaos.workload import GOOD, RecordKind
from tallyweir.sinks.postgres.audit import Check
from tallyweir.sinks.postgres.audit.receipt import judge, not_applicable

Sent = Mapping[Place, SentRecord]

#: The reason code of the pipeline's own rule, in ``pipeline.yaml``.
BROKEN_RULE = "NEGATIVE"


def check_records(
    sent: Sent, found: ObservedRun, *, broken_rule: str = BROKEN_RULE
) -> tuple[Check, ...]:
    """Compare every record with the tables.

    Args:
        sent: The records that were sent, by place.
        found: What the databases hold.
        broken_rule: The reason code of the pipeline's own rule.
    """
    return (
        _check_each_event_once(sent, found),
        _check_sources(sent, found),
        _check_payloads(sent, found),
        _check_dead_letters(sent, found, broken_rule),
        _check_accounted(sent, found),
    )


def _check_each_event_once(sent: Sent, found: ObservedRun) -> Check:
    """I1: each valid unique event is in the results exactly once."""
    wanted = {record.event_id for record in sent.values() if record.kind in GOOD}
    counted = Counter(row.event_id for row in found.rows)
    violations = [
        f"{event_id} is in the results {counted[event_id]} times"
        for event_id in sorted(wanted)
        if counted[event_id] != 1
    ]
    return judge(
        "I1_each_event_once", checked=len(wanted), unit="events", violations=violations
    )


def _check_sources(sent: Sent, found: ObservedRun) -> Check:
    """I2: each result names a record that is committed and good."""
    violations = []
    for row in found.rows:
        source = sent.get(row.place)
        if source is None or source.kind not in GOOD:
            what = "no committed record" if source is None else f"a {source.kind}"
            violations.append(f"{row.event_id} names {_at(row.place)}, which is {what}")
    return judge(
        "I2_no_result_without_source",
        checked=len(found.rows),
        unit="rows",
        violations=violations,
    )


def _check_payloads(sent: Sent, found: ObservedRun) -> Check:
    """I3: the columns of a result are those of its record."""
    violations = []
    for row in found.rows:
        source = sent.get(row.place)
        if source is not None and source.fingerprint != row.fingerprint:
            violations.append(
                f"{row.event_id} at {_at(row.place)}: fingerprint {row.fingerprint}, "
                f"sent was {source.event_id} with {source.fingerprint}"
            )
    return judge(
        "I3_payloads_unharmed",
        checked=len(found.rows),
        unit="rows",
        violations=violations,
    )


def _check_dead_letters(sent: Sent, found: ObservedRun, broken_rule: str) -> Check:
    """I11: each bad record is a dead letter exactly once, for the right reason."""
    bad = {
        place: record
        for place, record in sent.items()
        if record.kind in (RecordKind.UNDECODABLE, RecordKind.RULE_BREAKER)
    }
    counted = Counter(place for place, _ in found.dead_letters)
    violations = [
        f"{_at(place)} ({record.kind}) is a dead letter {counted[place]} times"
        for place, record in sorted(bad.items())
        if counted[place] != 1
    ]
    for place, reason in found.dead_letters:
        record = bad.get(place)
        if record is None:
            violations.append(f"{_at(place)} is a dead letter, but was not bad")
        elif (reason == broken_rule) != (record.kind is RecordKind.RULE_BREAKER):
            violations.append(f"{_at(place)} ({record.kind}) died of {reason}")
    return judge(
        "I11_dead_letters_once", checked=len(bad), unit="records", violations=violations
    )


def _check_accounted(sent: Sent, found: ObservedRun) -> Check:
    """I14: each delivered record is in one place, and no other record is in any."""
    counted = Counter(_places(found))
    violations = [
        f"{_at(place)} ({sent[place].kind} {sent[place].event_id}) is accounted for "
        f"{counted[place]} times"
        for place in sorted(sent)
        if counted[place] != 1
    ]
    violations += [
        f"{_at(place)} is accounted for, but was never committed"
        for place in sorted(counted.keys() - sent.keys())
    ]
    violations += [
        f"{_at(place)} counts as a repeat of {event_id}, but holds "
        f"{sent[place].event_id}"
        for place, event_id in found.duplicates
        if place in sent and sent[place].event_id != event_id
    ]
    return judge(
        "I14_every_record_accounted",
        checked=len(sent),
        unit="records",
        violations=violations,
    )


def _places(found: ObservedRun) -> Iterator[Place]:
    yield from (row.place for row in found.rows)
    yield from (place for place, _ in found.duplicates)
    yield from (place for place, _ in found.dead_letters)
    yield from found.other_places


def _at(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


_WINDOW_US = 15 * 60 * 1_000_000


def check_windows(sent: Sent, found: ObservedRun) -> Check:
    """I13: each window and site has exactly the totals of its events."""
    expected = _recount_windows(sent)
    violations = []
    seen = set()
    for key, totals in found.windows:
        if key in seen:
            violations.append(f"{_name(key)} is there more than once")
        seen.add(key)
        if totals != expected.get(key):
            violations.append(f"{_name(key)}: {totals}, recounted {expected.get(key)}")
    violations += [f"{_name(key)} is missing" for key in sorted(expected.keys() - seen)]
    return judge(
        "I13_windows_equal_a_recount",
        checked=len(expected),
        unit="windows",
        violations=violations,
    )


def _recount_windows(sent: Sent) -> dict[WindowKey, WindowTotals]:
    once = {record.event_id: record for record in sent.values() if record.kind in GOOD}
    amounts: dict[WindowKey, list[int]] = defaultdict(list)
    for record in once.values():
        start_us = record.happened_at_us - record.happened_at_us % _WINDOW_US
        start = dt.datetime.fromtimestamp(start_us / 1_000_000, tz=dt.UTC)
        amounts[start, record.site].append(record.amount)
    return {
        key: (len(several), sum(several), min(several), max(several))
        for key, several in amounts.items()
    }


def _name(key: WindowKey) -> str:
    return f"{key[0]:%Y-%m-%d %H:%M} {key[1]}"


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


def check_branches(found: ObservedRun) -> tuple[Check, ...]:
    """Compare the decisions, markers and rows of the participants with one another."""
    if not found.decided and not found.markers:
        why = "one database prepares nothing"
        return (
            not_applicable("I7_branches_follow_decisions", unit="branches", why=why),
            not_applicable("I7_branches_are_whole", unit="branches", why=why),
        )
    return (_check_branch_decisions(found), _check_branch_rows(found))


def _check_branch_decisions(found: ObservedRun) -> Check:
    """I7: each decided branch is committed once; no other branch is committed."""
    decided = {
        (branch.database, branch.sequence, branch.gid) for branch in found.decided
    }
    committed = Counter(
        (marker.database, marker.sequence, marker.gid) for marker in found.markers
    )
    batches = {batch.sequence for batch in found.batches}
    violations = [
        f"{gid} of batch {sequence} was decided and is not committed in {database}"
        for database, sequence, gid in sorted(decided - committed.keys())
    ]
    violations += [
        f"{gid} of batch {sequence} is committed in {database}, undecided"
        for database, sequence, gid in sorted(committed.keys() - decided)
    ]
    violations += [
        f"{branch[2]} is committed {count} times"
        for branch, count in committed.items()
        if count != 1
    ]
    violations += [
        f"{branch.gid} belongs to batch {branch.sequence}, which is not in the ledger"
        for branch in found.decided
        if branch.sequence not in batches
    ]
    return judge(
        "I7_branches_follow_decisions",
        checked=len(decided) + len(committed),
        unit="branches",
        violations=violations,
    )


def _check_branch_rows(found: ObservedRun) -> Check:
    """I7: a participant has as many rows of a batch as the batch's branches moved."""
    finder = RangeFinder(found.ranges)
    rows: Counter[tuple[str, int]] = Counter()
    for row in found.rows:
        part = finder.find(row.place)
        if part is not None and row.database != HOME:
            rows[row.database, part.sequence] += 1
    moved: Counter[tuple[str, int]] = Counter()
    for marker in found.markers:
        if marker.database != HOME:
            moved[marker.database, marker.sequence] += marker.rows or 0
    violations = [
        f"batch {sequence} moved {moved[database, sequence]} rows to {database}, "
        f"which has {rows[database, sequence]}"
        for database, sequence in sorted(rows.keys() | moved.keys())
        if rows[database, sequence] != moved[database, sequence]
    ]
    return judge(
        "I7_branches_are_whole",
        checked=len(found.markers),
        unit="branches",
        violations=violations,
    )
