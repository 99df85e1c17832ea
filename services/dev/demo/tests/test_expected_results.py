"""The demo's own count, and that it finds what is wrong."""

from __future__ import annotations

import datetime as dt

import pytest

from tallyweir.services.dev.demo.expected_results import (
    ExpectedResults,
    HourOfFlights,
    WindowKey,
    compare_ids,
    compare_windows,
)

KEY: WindowKey = (
    dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC),
    "EWR",
    "United Air Lines Inc.",
)


def flight(event_id: str, minute: int, delay: int | None) -> dict[str, object]:
    """One United flight from Newark in the hour of KEY."""
    return {
        "event_id": event_id,
        "scheduled_at": KEY[0] + dt.timedelta(minutes=minute),
        "origin": "EWR",
        "carrier": "UA",
        "dep_delay_minutes": delay,
    }


def hour(
    flights: int = 3, cancelled: int = 1, delay_sum: float = 8, worst: int | None = 10
) -> HourOfFlights:
    """What a window says."""
    return HourOfFlights(
        flights=flights, cancelled=cancelled, delay_sum=delay_sum, worst_delay=worst
    )


def test_flights_of_an_hour_are_added_up() -> None:
    """Cancelled flights count as flights, and have no delay."""
    expected = ExpectedResults({"UA": "United Air Lines Inc."})
    records = [flight("a", 0, 10), flight("b", 59, -2), flight("c", 30, None)]

    assert list(expected.count(records)) == records
    assert expected.windows == {KEY: hour()}
    assert expected.event_ids == {"a", "b", "c"}


def test_an_hour_of_cancelled_flights_has_no_worst_delay() -> None:
    """Nothing is not zero."""
    expected = ExpectedResults({})
    list(expected.count([flight("a", 60, None)]))

    (key,) = expected.windows
    assert key == (KEY[0] + dt.timedelta(hours=1), "EWR", "unknown")
    assert expected.windows[key] == hour(1, 1, 0, None)


def test_equal_results_have_no_violation() -> None:
    """A sum that only differs by rounding is the same sum."""
    assert compare_ids({"a", "b"}, ["b", "a"]) == []
    assert compare_windows({KEY: hour()}, {KEY: hour(delay_sum=8 + 1e-10)}) == []


@pytest.mark.parametrize(
    ("found", "violation"),
    [
        (["a"], "b is missing"),
        (["a", "b", "c"], "c was never sent"),
        (["a", "b", "b"], "1 rows repeat an ID"),
    ],
)
def test_each_wrong_id_is_named(found: list[str], violation: str) -> None:
    """Loss, invention and doubling are three different findings."""
    assert compare_ids({"a", "b"}, found) == [violation]


@pytest.mark.parametrize(
    "found",
    [
        {},
        {KEY: hour(flights=4)},
        {KEY: hour(cancelled=0)},
        {KEY: hour(delay_sum=8.001)},
        {KEY: hour(worst=9)},
        {KEY: hour(worst=None)},
        {KEY: hour(), ("elsewhere", *KEY[1:]): hour()},
    ],
)
def test_each_wrong_number_is_a_violation(
    found: dict[WindowKey, HourOfFlights],
) -> None:
    """No number of a window can be wrong unseen."""
    found = {
        (KEY[0] if key[0] != "elsewhere" else KEY[0].replace(hour=3), *key[1:]): value
        for key, value in found.items()
    }
    assert len(compare_windows({KEY: hour()}, found)) == 1
