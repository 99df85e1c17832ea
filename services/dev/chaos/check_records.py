"""Invariants about records: each counts once, as what it is, and nothing else counts.

Pure functions that compare what was sent with what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tallyweir.services.dev.chaos.observed_run import ObservedRun
from tallyweir.services.dev.chaos.sent_log import Place, SentRecord
from tallyweir.services.dev.chaos.workload import GOOD, RecordKind
from tallyweir.sinks.postgres.audit import Check
from tallyweir.sinks.postgres.audit.receipt import judge

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
