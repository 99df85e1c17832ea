"""Which field is the ID and which the time, by what was measured."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from tallyweir.services.look.disorder import DisorderMeter, written_delay
from tallyweir.services.look.id_candidates import SETTLED_AT
from tallyweir.services.look.tests.looked_topics import (
    NOW_MS,
    proposed,
    record,
    records,
)


def _order(number: int, **changed: object) -> dict[str, object]:
    minute, second = divmod(number, 60)
    return {
        "customer": {"id": number % 3},
        "order_id": f"o{number}",
        "placed_at": f"2026-11-20T10:{minute % 60:02}:{second:02}Z",
        "amount": 1.5,
    } | changed


def test_the_field_that_stands_for_one_payload_each_is_the_id() -> None:
    """A copy that was written anew, in another order, is a repeat."""
    anew = dict(reversed(list(_order(3).items())))
    proposal = proposed(records([*map(_order, range(20)), anew]))
    assert proposal.event_id is not None
    assert "order_id" == proposal.id_name
    counts = proposal.event_id.counts
    assert (21, 20, 1, 0) == (
        counts.values,
        counts.distinct,
        counts.repeats,
        counts.conflicts,
    )


def test_a_name_with_conflicts_is_no_id() -> None:
    """States of one order share its ID; dropping them would lose them."""
    documents = [_order(number, order_id=f"o{number // 2}") for number in range(20)]
    proposal = proposed(records(documents))
    assert "position" == proposal.id_name
    (orders,) = [one for one in proposal.ids if one.name == "order_id"]
    assert (10, 0, 10) == (
        orders.counts.distinct,
        orders.counts.repeats,
        orders.counts.conflicts,
    )


def test_repeats_and_conflicts_of_one_id_are_those_after_its_first_record() -> None:
    """Payloads A, B, A, B: one repeat, two conflicts."""
    first, other = _order(1), _order(1, amount=2)
    proposal = proposed(records([first, other, first, other]))
    (orders,) = [one for one in proposal.ids if one.name == "order_id"]
    assert (1, 2) == (orders.counts.repeats, orders.counts.conflicts)


def test_an_id_that_is_missing_once_is_none() -> None:
    """Its record would be a dead letter."""
    proposal = proposed(records([*map(_order, range(9)), _order(9, order_id=None)]))
    assert "position" == proposal.id_name


def test_a_header_may_be_the_id() -> None:
    """With the name that it has in the pipeline file."""
    found = [
        record({"n": 1}, number, headers={"event_id": b"e%d" % number})
        for number in range(5)
    ]
    assert "header:event_id" == proposed(found).id_name


def test_the_key_is_measured_and_not_chosen() -> None:
    """It may be unique in a sample and come again later."""
    found = [record({"n": number}, number, key=b"k%d" % number) for number in range(5)]
    proposal = proposed(found)
    assert "position" == proposal.id_name
    assert ["key"] == [one.name for one in proposal.ids if one.name == "key"]


def test_after_the_first_records_only_likely_ids_are_counted() -> None:
    """The counts of the others say so."""
    documents = [_order(number, note="x") for number in range(SETTLED_AT + 50)]
    proposal = proposed(records(documents))
    assert proposal.event_id is not None
    assert SETTLED_AT + 50 == proposal.event_id.counts.distinct
    (note,) = [one for one in proposal.ids if one.name == "note"]
    assert note.is_partly
    assert SETTLED_AT == note.counts.values


def test_the_delay_loses_none_or_one_in_a_thousand() -> None:
    """By partition: the newest of one makes no event of another late."""
    meter = DisorderMeter(now=10**15)
    seconds = [*range(1, 1_999), 1, 1_990, 1_990]
    for part in (seconds[:700], seconds[700:]):
        add_to(meter, 0, *(one * 1_000_000 for one in part))
    add_to(meter, 1, 5_000_000)
    assert timedelta(seconds=1_997) == meter.delay_for_all
    assert timedelta(seconds=8) == meter.delay_losing(0.001)
    assert timedelta(hours=1) == written_delay(meter.delay_for_all)


def test_a_clock_ahead_does_not_make_all_others_late() -> None:
    """The watermark does not pass the clock, and a far future is a dead letter."""
    meter = DisorderMeter(now=100)
    add_to(meter, 0, 100 + 3_600_000_000, 99, 10**15)
    assert (timedelta(milliseconds=1), 1) == (meter.delay_for_all, meter.future)


def add_to(meter: DisorderMeter, partition: int, *micros: int) -> None:
    """Note events of one partition."""
    meter.add(np.full(len(micros), partition), np.array(micros))


def test_the_time_of_the_event_is_a_field_that_all_have() -> None:
    """Others are told, with the delay that they would need."""
    documents = [
        _order(number, shipped_at="2026-11-21T10:00:00Z" if number else None)
        for number in range(5)
    ]
    proposal = proposed(records(documents))
    assert "placed_at" == proposal.time_name
    assert ["placed_at", "shipped_at", "kafka_timestamp"] == [
        one.name for one in proposal.times
    ]
    assert timedelta(minutes=1) == proposal.watermark_delay


def test_a_number_that_may_be_a_time_is_only_suggested() -> None:
    """Kafka's timestamp stands in; the note names the type to write."""
    documents = [{"id": f"e{n}", "created": NOW_MS - n} for n in range(5)]
    proposal = proposed(records(documents))
    assert "kafka_timestamp" == proposal.time_name
    assert ["ms", ""] == [one.unit for one in proposal.times]
    notes = {one.name: one.type.note for one in proposal.fields}
    assert "may be `timestamptz epoch ms`" == notes["created"]


def test_a_birthday_is_not_the_time_of_an_event() -> None:
    """A time that is years out of order is hardly the event's."""
    documents = [
        {"id": f"e{n}", "born": f"{2000 - n}-01-01T00:00:00Z"} for n in range(5)
    ]
    assert "kafka_timestamp" == proposed(records(documents)).time_name
