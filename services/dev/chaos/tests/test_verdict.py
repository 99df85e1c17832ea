"""A run as it should be is ok; each kind of damage breaks the invariant it is about."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tallyweir.services.dev.chaos.invariants import Sent, Witnesses
from tallyweir.services.dev.chaos.nemesis import DriverDeath
from tallyweir.services.dev.chaos.observed_run import ObservedRun
from tallyweir.services.dev.chaos.tests.finished_run import (
    OFFSETS_PER_BATCH,
    finished,
    in_two_databases,
    sent_records,
    witnesses,
)
from tallyweir.services.dev.chaos.verdict import (
    judge_prepared,
    judge_sent_log,
    judge_snapshots,
    judge_tables,
    measure_recovery,
)
from tallyweir.sinks.postgres.audit import Verdict

Damage = Callable[[ObservedRun, random.Random], ObservedRun]


def broken(sent: Sent, found: ObservedRun, seen: Witnesses) -> set[str]:
    """Name the invariants that do not hold, by their numbers."""
    checks = judge_tables(sent, found, seen)
    return {c.name.split("_")[0] for c in checks if c.verdict is Verdict.FAILED}


def remove_row(found: ObservedRun, source: random.Random) -> ObservedRun:
    """Lose a row."""
    rows = list(found.rows)
    rows.pop(source.randrange(len(rows)))
    return replace(found, rows=tuple(rows))


def double_row(found: ObservedRun, source: random.Random) -> ObservedRun:
    """Repeat a row."""
    return replace(found, rows=(*found.rows, source.choice(found.rows)))


def swap_payloads(found: ObservedRun, source: random.Random) -> ObservedRun:
    """Exchange what two rows say."""
    rows = list(found.rows)
    one, other = source.sample(range(len(rows)), 2)
    former = rows[one].fingerprint
    rows[one] = replace(rows[one], fingerprint=rows[other].fingerprint)
    rows[other] = replace(rows[other], fingerprint=former)
    return replace(found, rows=tuple(rows))


def move_row(found: ObservedRun, source: random.Random) -> ObservedRun:
    """Let a row name an offset of another batch."""
    rows = list(found.rows)
    index = source.randrange(len(rows))
    partition, offset = rows[index].place
    span = 6 * OFFSETS_PER_BATCH
    moved = (partition, (offset + OFFSETS_PER_BATCH) % span)
    rows[index] = replace(rows[index], place=moved)
    return replace(found, rows=tuple(rows))


def advance_offset(found: ObservedRun, source: random.Random) -> ObservedRun:
    """Move a stored offset by one."""
    partition = source.choice(sorted(found.positions))
    moved = {**found.positions, partition: found.positions[partition] + 1}
    return replace(found, positions=moved)


@pytest.mark.parametrize("seed", range(20))
def test_a_run_as_it_should_be_breaks_nothing(seed: int) -> None:
    """Without damage no invariant is broken, and each was checked."""
    sent = sent_records(seed)
    found = finished(sent)

    checks = judge_tables(sent, found, witnesses(found))

    assert [c.violations for c in checks if c.violations] == []
    assert all(
        check.checked > 0
        for check in checks
        if check.verdict is not Verdict.NOT_APPLICABLE
    )


def test_branches_are_decided_committed_and_whole() -> None:
    """A branch is committed exactly when its batch is, with all of its rows."""
    sent = sent_records(1)
    found = in_two_databases(finished(sent))
    seen = witnesses(found)
    first, *rest = found.markers
    less = replace(first, rows=(first.rows or 0) + 1)
    beyond = replace(found.decided[0], sequence=99)

    assert broken(sent, found, seen) == set()
    for spoilt in (
        replace(found, markers=tuple(rest)),
        replace(found, decided=found.decided[1:]),
        replace(found, markers=(first, *found.markers)),
        replace(found, markers=(less, *rest)),
        replace(found, decided=(beyond, *found.decided[1:])),
    ):
        assert broken(sent, spoilt, seen) == {"I7"}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("damage", "breaks"),
    [
        (remove_row, {"I1", "I10", "I14"}),
        (double_row, {"I1", "I10", "I14"}),
        (swap_payloads, {"I3"}),
        (move_row, {"I10", "I14"}),
        (advance_offset, {"I5"}),
    ],
)
def test_each_kind_of_damage_is_noticed(
    damage: Damage, breaks: set[str], seed: int
) -> None:
    """The five kinds of damage break at least the invariants that they are about."""
    sent = sent_records(seed)
    found = finished(sent)
    spoilt = damage(found, random.Random(seed))

    assert breaks <= broken(sent, spoilt, witnesses(found))


def test_a_row_of_an_aborted_record_has_no_source() -> None:
    """What Kafka never committed must not be in the results."""
    sent = dict(sent_records(1))
    found = finished(sent)
    aborted = found.rows[0]
    del sent[aborted.place]

    assert {"I2", "I10", "I14"} <= broken(sent, found, witnesses(found))


def test_a_row_of_a_bad_record_is_noticed() -> None:
    """What must be a dead letter must not be a result, even unharmed."""
    sent = sent_records(1)
    found = finished(sent)
    (place, _), *_ = found.dead_letters
    row = replace(
        found.rows[0],
        place=place,
        event_id=sent[place].event_id,
        fingerprint=sent[place].fingerprint,
    )
    spoilt = replace(found, rows=(*found.rows, row))

    assert "I2" in broken(sent, spoilt, witnesses(found))


def test_a_dead_letter_must_die_of_its_own_reason_and_once() -> None:
    """A bad record is a dead letter exactly once."""
    sent = sent_records(1)
    found = finished(sent)
    (place, reason), *rest = found.dead_letters
    doubled = replace(found, dead_letters=((place, reason), *found.dead_letters))
    lost = replace(found, dead_letters=tuple(rest))
    renamed = replace(found, dead_letters=((place, "NEGATIVE"), *rest))

    for spoilt in (doubled, lost, renamed):
        assert "I11" in broken(sent, spoilt, witnesses(found))


def test_a_repeat_of_another_event_is_noticed() -> None:
    """A duplicate must name the event that its record holds."""
    sent = sent_records(1)
    found = finished(sent)
    (place, _), *rest = found.duplicates
    spoilt = replace(found, duplicates=((place, "somebody-else"), *rest))

    assert broken(sent, spoilt, witnesses(found)) == {"I14"}


def test_a_batch_decided_twice_is_noticed() -> None:
    """A driver decides each of its batches once."""
    sent = sent_records(1)
    found = finished(sent)
    first, second, *rest = found.batches
    twin = replace(second, epoch=first.epoch, spark_batch_id=first.spark_batch_id)
    spoilt = replace(found, batches=(first, twin, *rest))

    assert "I6" in broken(sent, spoilt, witnesses(spoilt))


def test_a_decision_that_was_seen_and_is_gone_is_noticed() -> None:
    """What a snapshot showed or a driver told stays in the ledger."""
    sent = sent_records(1)
    found = finished(sent)
    seen = witnesses(found)
    last = found.batches[-1]
    redecided = replace(
        found, batches=(*found.batches[:-1], replace(last, spark_batch_id=99))
    )

    assert broken(sent, redecided, seen) == {"I7"}
    assert broken(sent, redecided, replace(seen, seen={})) == set()
    changed = replace(seen, changed=("a batch changed",))
    assert broken(sent, found, changed) == {"I7"}
    told_otherwise = replace(seen.told[-1], epoch=last.epoch + 1)
    told = replace(seen, told=(*seen.told[:-1], told_otherwise))
    assert broken(sent, found, told) == {"I7"}


def test_a_row_behind_the_end_of_the_ledger_is_noticed() -> None:
    """The offset at which the last range ends is not in it."""
    sent = sent_records(1)
    found = finished(sent)
    beyond = replace(found.rows[0], place=(0, found.positions[0]))
    spoilt = replace(found, rows=(*found.rows, beyond))

    assert {"I2", "I7", "I14"} <= broken(sent, spoilt, witnesses(found))


def test_an_older_epoch_that_publishes_after_a_newer_one_is_noticed() -> None:
    """Epochs in the ledger never fall, and each was claimed."""
    sent = sent_records(1)
    found = finished(sent)
    last = replace(found.batches[-1], epoch=1)
    stale = replace(found, batches=(*found.batches[:-1], last))
    unclaimed = replace(found, claims=found.claims[:-1])

    assert broken(sent, stale, witnesses(stale)) == {"I8"}
    silent = replace(witnesses(stale), told=())
    assert broken(sent, stale, silent) == {"I8"}
    assert broken(sent, unclaimed, witnesses(found)) == {"I8"}


def test_a_window_that_is_off_by_one_is_noticed() -> None:
    """Window totals are those of the events, recounted."""
    sent = sent_records(1)
    found = finished(sent)
    (key, (events, total, least, most)), *rest = found.windows
    changed = [
        (events + 1, total, least, most),
        (events, total + 1, least, most),
        (events, total, least - 1, most),
        (events, total, least, most + 1),
    ]
    twice = replace(found, windows=(found.windows[0], *found.windows))

    for spoilt in (
        *(replace(found, windows=((key, totals), *rest)) for totals in changed),
        twice,
        replace(found, windows=tuple(rest)),
    ):
        assert broken(sent, spoilt, witnesses(found)) == {"I13"}


def test_a_gap_between_ranges_is_noticed() -> None:
    """Ranges of a partition follow one another."""
    sent = sent_records(1)
    found = finished(sent)
    index = len(found.ranges) // 2
    part = found.ranges[index]
    moved = replace(part, from_offset=part.from_offset + 1)
    ranges = (*found.ranges[:index], moved, *found.ranges[index + 1 :])

    assert "I5" in broken(sent, replace(found, ranges=ranges), witnesses(found))


def test_what_stays_prepared_fails_the_run() -> None:
    """Nothing may be left in doubt."""
    assert judge_prepared({}, databases=3, seconds=1).verdict is Verdict.OK
    left = judge_prepared({"p1": ["tallyweir:x"]}, databases=3, seconds=1)
    assert left.verdict is Verdict.FAILED


def test_a_run_without_snapshots_proves_nothing() -> None:
    """A reader that never looked has seen nothing wrong."""
    assert judge_snapshots([], [], {}).verdict is Verdict.FAILED


def test_a_sent_log_that_kafka_does_not_share_fails_the_run() -> None:
    """The scale's other side is weighed as well."""
    assert judge_sent_log(10, 10).verdict is Verdict.OK
    assert judge_sent_log(10, 11).verdict is Verdict.FAILED


def test_recovery_is_measured_to_the_next_batch_of_a_newer_epoch() -> None:
    """A batch of the dead driver's own epoch is no recovery."""
    found = finished(sent_records(1))
    at = found.batches[0].published_at - dt.timedelta(seconds=0.5)
    newer = next(b for b in found.batches if b.epoch > found.batches[0].epoch)

    recovery = measure_recovery(
        [DriverDeath(at=at, epoch=found.batches[0].epoch)], found.batches
    )

    assert recovery.seconds == ((newer.published_at - at).total_seconds(),)
    assert recovery.as_json()["n"] == 1
