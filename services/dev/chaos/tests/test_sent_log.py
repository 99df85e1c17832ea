"""The sent log knows what committed, and claims nothing else."""

from __future__ import annotations

from tallyweir.services.dev.chaos.sent_log import Outcome, SentLog
from tallyweir.services.dev.chaos.workload import ChaosEvent, Record, RecordKind


def record(event_id: str) -> Record:
    """Make a record."""
    event = ChaosEvent(
        event_id=event_id, site="s", amount=1, happened_at_us=2, note="n"
    )
    return Record(kind=RecordKind.EVENT, event=event, partition=0, payload=b"")


def test_only_records_of_committed_transactions_are_committed() -> None:
    """Aborted ones are counted, open ones are neither."""
    log = SentLog()
    for name, outcome in (
        ("kept", Outcome.COMMITTED),
        ("lost", Outcome.ABORTED),
        ("open", None),
    ):
        number = log.begin()
        log.write(number, [record(name)], {0: (0, number)})
        if outcome is not None:
            log.decide(number, outcome)

    committed = log.read_committed()

    assert [one.event_id for one in committed.values()] == ["kept"]
    assert committed[0, 0].fingerprint == record("kept").event.fingerprint
    assert log.count_aborted() == 1
    assert log.count_transactions() == {"committed": 1, "aborted": 1, "open": 1}


def test_a_record_that_was_not_reported_has_no_place() -> None:
    """A transaction that lacks a report is aborted; nobody needs its places."""
    log = SentLog()
    number = log.begin()
    log.write(number, [record("a"), record("b")], {1: (3, 5)})
    log.decide(number, Outcome.ABORTED)

    assert log.read_committed() == {}
    assert log.count_aborted() == 2
