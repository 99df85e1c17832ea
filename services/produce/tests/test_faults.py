"""A fault plan does what it counts, and the same for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest

from tallyweir.schemas.codec import decode, diagnose
from tallyweir.schemas.contract import load_contract, versions_of
from tallyweir.schemas.errors import ReasonCode
from tallyweir.schemas.tests.strategies import contract_of
from tallyweir.services.produce.emit import plan_faults
from tallyweir.services.produce.faults import (
    FAR_EVENTS,
    FaultPlan,
    FaultRates,
    Message,
    MessageKind,
    default_partition,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

CONTRACT = load_contract("flight_departure.v1")
KNOWN = versions_of(CONTRACT)
PARTITIONS = 4
ALL_FAULTS = FaultRates(
    duplicates=0.2,
    poison=0.1,
    conflicts=0.05,
    disorder=0.1,
    invalid=("distance_miles", -1),
)
EXPECTED_REASONS = {
    "truncated": ReasonCode.MALFORMED,
    "bad_magic": ReasonCode.BAD_MAGIC,
    "unknown_schema": ReasonCode.UNKNOWN_SCHEMA,
    "trailing_bytes": ReasonCode.TRAILING_BYTES,
}


def flights(count: int) -> list[dict[str, object]]:
    """Valid records with distinct IDs."""
    return [
        {
            "event_id": f"E{number}",
            "scheduled_at": 1_700_000_000_000_000 + number,
            "carrier": "UA",
            "flight": number,
            "tailnum": None,
            "origin": "EWR",
            "destination": "IAH",
            "distance_miles": 1400,
            "dep_delay_minutes": None,
            "arr_delay_minutes": None,
            "air_time_minutes": None,
        }
        for number in range(count)
    ]


def plan(
    rates: FaultRates, *, seed: int = 7, partitions: int = PARTITIONS
) -> FaultPlan:
    """A fresh plan."""
    return plan_faults(
        contract=CONTRACT,
        event_id="event_id",
        partitions=partitions,
        rates=rates,
        seed=seed,
    )


def positions(messages: list[Message], *kinds: str) -> dict[str, int]:
    """Where the message of each ID is, of some kinds."""
    return {
        message.event_id: index
        for index, message in enumerate(messages)
        if message.kind in kinds
    }


def test_without_faults_the_messages_are_the_events_in_order() -> None:
    """A plan of nothing changes nothing."""
    quiet = plan(FaultRates())
    messages = list(quiet.messages(flights(100)))
    assert [decode(m.payload, KNOWN)["event_id"] for m in messages] == [
        f"E{number}" for number in range(100)
    ]
    assert {m.kind for m in messages} == {MessageKind.EVENT}
    assert all(m.key == m.event_id.encode() and m.partition is None for m in messages)
    assert quiet.expectation.sent == quiet.expectation.unique_valid == 100


@pytest.mark.parametrize("seed", range(5))
def test_the_expectation_counts_what_an_independent_reader_counts(seed: int) -> None:
    """First copies, repeats, conflicts and poison, told apart by content alone."""
    faults = plan(ALL_FAULTS, seed=seed)
    first: dict[object, bytes] = {}
    found: Counter[str] = Counter()
    for message in faults.messages(flights(5_000)):
        if diagnose(message.payload, KNOWN) is not None:
            found["undecodable"] += 1
            continue
        record = decode(message.payload, KNOWN)
        if record["distance_miles"] == -1:
            found["invalid"] += 1
        elif record["event_id"] not in first:
            first[record["event_id"]] = message.payload
            found["unique"] += 1
        elif first[record["event_id"]] == message.payload:
            found["duplicate"] += 1
        else:
            found["conflict"] += 1
    expected = faults.expectation
    assert expected.sent == found.total()
    assert expected.unique_valid == found["unique"] == 5_000
    assert sum(expected.duplicates.values()) == found["duplicate"]
    assert expected.conflicts == found["conflict"]
    assert expected.poison["invalid"] == found["invalid"]
    assert sum(expected.poison.values()) == found["undecodable"] + found["invalid"]
    assert 800 < found["duplicate"] < 1_200
    assert 400 < sum(expected.poison.values()) < 600
    assert 200 < found["conflict"] < 300
    assert min(*expected.duplicates.values(), *expected.poison.values()) > 30


def test_each_kind_of_poison_breaks_its_own_rule() -> None:
    """The reason that the reader finds is the one that was planned."""
    messages = list(plan(FaultRates(poison=1.0)).messages(flights(1_000)))
    for message in messages:
        error = diagnose(message.payload, KNOWN)
        if message.kind in EXPECTED_REASONS:
            assert error is not None
            assert error.reason_code == EXPECTED_REASONS[message.kind]
        else:
            assert (error is None) == (message.kind is MessageKind.EVENT)
    assert {m.kind for m in messages} == {MessageKind.EVENT, *CONTRACT.format.damages}


def test_repeats_come_at_once_or_later_or_in_another_partition() -> None:
    """Same bytes and ID each time; elsewhere is never the key's own partition."""
    messages = list(plan(FaultRates(duplicates=1.0)).messages(flights(4_000)))
    originals = positions(messages, MessageKind.EVENT)
    payloads = {m.event_id: m.payload for m in messages if m.partition is None}
    for message in messages:
        assert message.payload == payloads[message.event_id]
        if message.kind is MessageKind.REPEAT_ELSEWHERE:
            assert message.partition in range(PARTITIONS)
            assert message.partition != default_partition(message.key, PARTITIONS)
        else:
            assert message.partition is None
    near = positions(messages, MessageKind.REPEAT_NEAR)
    far = positions(messages, MessageKind.REPEAT_FAR)
    assert all(0 < at - originals[event_id] <= 100 for event_id, at in near.items())
    assert all(
        at - originals[event_id] >= FAR_EVENTS
        for event_id, at in far.items()
        if originals[event_id] < 4_000
    )


def test_with_one_partition_no_repeat_goes_elsewhere() -> None:
    """There is no other partition to go to."""
    lone = plan(FaultRates(duplicates=1.0), partitions=1)
    assert {m.partition for m in lone.messages(flights(100))} == {None}
    assert lone.expectation.duplicates["repeat_elsewhere"] == 0


def test_a_conflict_comes_after_its_event_and_differs() -> None:
    """The event is the first of its ID, also when it is sent late."""
    rates = FaultRates(conflicts=1.0, disorder=0.5)
    messages = list(plan(rates).messages(flights(500)))
    events = positions(messages, MessageKind.EVENT)
    for event_id, at in positions(messages, MessageKind.CONFLICT).items():
        assert at > events[event_id]
        assert messages[at].payload != messages[events[event_id]].payload
        assert messages[at].key == messages[events[event_id]].key


def test_disorder_only_reorders() -> None:
    """Nothing is lost or added, and something moves."""
    messages = list(plan(FaultRates(disorder=0.2)).messages(flights(500)))
    sent = [m.event_id for m in messages]
    ordered = [f"E{number}" for number in range(500)]
    assert sorted(sent) == sorted(ordered)
    assert sent != ordered


def test_the_seed_decides_the_faults() -> None:
    """A failure can be run again."""
    first = list(plan(ALL_FAULTS, seed=3).messages(flights(500)))
    assert first == list(plan(ALL_FAULTS, seed=3).messages(flights(500)))
    assert first != list(plan(ALL_FAULTS, seed=4).messages(flights(500)))


def test_no_records_make_no_messages() -> None:
    """An empty file is no error here."""
    empty = plan(ALL_FAULTS)
    assert list(empty.messages([])) == []
    assert empty.expectation.sent == 0


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_its_range_is_an_error(share: float) -> None:
    """20 instead of 0.2 is a mistake, not a wish."""
    with pytest.raises(ConfigurationError, match="SHARE_OUT_OF_RANGE"):
        FaultRates(duplicates=share)


def test_a_field_that_the_contract_lacks_is_an_error() -> None:
    """ID, key and broken field are checked before anything is sent."""
    with pytest.raises(ConfigurationError, match="FIELD_UNKNOWN"):
        plan(FaultRates(invalid=("distance", -1)))
    with pytest.raises(ConfigurationError, match="FIELD_UNKNOWN"):
        plan_faults(contract=CONTRACT, event_id="id", partitions=1)


def test_every_fault_that_was_drawn_is_sent_by_the_end() -> None:
    """The longest held-back message is the repeat of a late event."""
    rates = FaultRates(duplicates=1.0, conflicts=1.0, poison=1.0, disorder=1.0)
    complete = plan(rates)
    list(complete.messages(flights(500)))
    expected = complete.expectation
    assert expected.unique_valid == expected.conflicts == 500
    assert sum(expected.duplicates.values()) == sum(expected.poison.values()) == 500


def test_an_invalid_record_has_an_id_of_its_own() -> None:
    """With the ID of an event it would be a repeat, not a dead letter."""
    rates = FaultRates(poison=1.0, invalid=("distance_miles", -1))
    messages = list(plan(rates).messages(flights(500)))
    events = positions(messages, MessageKind.EVENT)
    for message in messages:
        if message.kind is MessageKind.INVALID:
            assert decode(message.payload, KNOWN)["event_id"] == message.event_id
            assert message.event_id not in events


def test_random_bytes_are_never_an_event_by_chance() -> None:
    """Where one byte is a whole event, chance would often make one."""
    tiny = contract_of(
        {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    )
    faults = plan_faults(
        contract=tiny, event_id="n", partitions=1, rates=FaultRates(poison=1.0)
    )
    for message in faults.messages({"n": number} for number in range(5_000)):
        if message.kind == "random_bytes":
            assert diagnose(message.payload, {tiny.schema_id: tiny}) is not None
