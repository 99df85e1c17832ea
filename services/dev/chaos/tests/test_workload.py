"""The workload has what the options promise, again and again the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tallyweir.schemas.codec import decode, diagnose
from tallyweir.schemas.contract import (
    Contract,
    DeclaredFields,
    load_contract,
    versions_of,
)
from tallyweir.services.dev.chaos.workload import (
    GOOD,
    RecordKind,
    Transaction,
    Workload,
    count_records,
)

CONTRACT_FILE = Path(__file__).parents[1] / "chaos_event.v1.avsc"


@pytest.fixture(scope="module")
def contract() -> Contract:
    """The contract of the events."""
    return load_contract(str(CONTRACT_FILE))


def transactions(contract: Contract, *, events: int, seed: int) -> list[Transaction]:
    """Make the whole workload."""
    workload = Workload(lambda _share: contract, events=events, seed=seed)
    return list(workload.transactions())


@pytest.mark.parametrize("events", [1, 19, 100, 2_005])
def test_as_many_records_are_committed_as_were_promised(
    contract: Contract, events: int
) -> None:
    """Faults are planned by the number of records, so it must be known before."""
    committed = [
        record
        for transaction in transactions(contract, events=events, seed=3)
        if transaction.commits
        for record in transaction.records
    ]

    kinds = Counter(record.kind for record in committed)
    assert len(committed) == count_records(events)
    assert kinds[RecordKind.EVENT] == events
    assert kinds[RecordKind.REPEAT] == events // 10
    assert kinds[RecordKind.UNDECODABLE] + kinds[RecordKind.RULE_BREAKER] == (
        events // 20
    )


def test_a_seed_gives_the_same_workload_again(contract: Contract) -> None:
    """A failing seed can be run again."""
    once = transactions(contract, events=500, seed=3)

    assert once == transactions(contract, events=500, seed=3)
    assert once != transactions(contract, events=500, seed=4)


def test_three_in_ten_transactions_abort_and_lose_what_never_comes(
    contract: Contract,
) -> None:
    """Aborted transactions hold ghosts, and events that are sent again."""
    made = transactions(contract, events=5_000, seed=3)
    aborted = [one for one in made if not one.commits]
    lost = [record for one in aborted for record in one.records]
    kept = {r.event.event_id for one in made if one.commits for r in one.records}

    assert len(aborted) / len(made) == pytest.approx(0.3, abs=0.08)
    ghosts = [r for r in lost if r.kind is RecordKind.GHOST]
    assert ghosts
    assert not kept & {ghost.event.event_id for ghost in ghosts}
    assert kept & {record.event.event_id for record in lost}


def test_a_repeat_is_its_event_to_the_byte_and_may_lie_elsewhere(
    contract: Contract,
) -> None:
    """Some repeats go to another partition, some come much later."""
    records = [
        record
        for one in transactions(contract, events=5_000, seed=3)
        if one.commits
        for record in one.records
    ]
    first = {r.event.event_id: (i, r) for i, r in reversed([*enumerate(records)])}
    elsewhere = far = 0
    for index, record in enumerate(records):
        if record.kind is RecordKind.REPEAT:
            before, event = first[record.event.event_id]
            assert record.payload == event.payload
            elsewhere += record.partition != event.partition
            far += index - before > 100
    assert elsewhere > 100
    assert far > 100


def test_a_repeat_of_a_document_is_another_spelling_of_it() -> None:
    """A producer may serialise an event anew when it sends it again."""
    fields = dict.fromkeys(("event_id", "site", "note"), "text not null")
    declared = DeclaredFields(
        fields=fields | {"amount": "bigint", "happened_at": "timestamptz"},
        unknown="refuse",
    )
    contract = load_contract(declared.reference)
    known = versions_of(contract)
    first: dict[str, bytes] = {}
    repeats = 0
    for one in transactions(contract, events=1_000, seed=3):
        for record in one.records if one.commits else ():
            if record.kind is RecordKind.REPEAT:
                event = first[record.event.event_id]
                assert event != record.payload
                assert decode(event, known) == decode(record.payload, known)
                repeats += 1
            elif record.kind in GOOD:
                first[record.event.event_id] = record.payload
            problem = diagnose(record.payload, known)
            assert (problem is not None) == (record.kind is RecordKind.UNDECODABLE)
    assert repeats == 100


def test_bad_records_are_bad_and_good_ones_good(contract: Contract) -> None:
    """Undecodable bytes never decode by accident; rule breakers do decode."""
    known = versions_of(contract)
    for one in transactions(contract, events=5_000, seed=3):
        for record in one.records:
            problem = diagnose(record.payload, known)
            assert (problem is not None) == (record.kind is RecordKind.UNDECODABLE)
            if record.kind in GOOD:
                assert record.event.amount >= 0
            if record.kind is RecordKind.RULE_BREAKER:
                assert record.event.amount < 0
