"""The demo's independent count can fail, by each of its numbers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from tallyweir.services.dev.demo.drill import DrillReport
from tallyweir.services.dev.demo.expected_results import ExpectedResults
from tallyweir.services.dev.demo.independent_checks import add_independent_checks
from tallyweir.services.produce.faults import Expectation
from tallyweir.sinks.postgres.audit import Receipt, Totals

HOUR = dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC)
FLIGHTS = (("a", 9), ("b", -2), ("c", None))

TABLES = """
CREATE TABLE departures (
    event_id text, kafka_topic text, kafka_partition int, kafka_offset bigint
);
INSERT INTO departures VALUES ('a', 't', 0, 0), ('b', 't', 0, 1), ('c', 't', 0, 2);
CREATE TABLE departures_by_hour (
    window_start timestamptz, origin text, airline text,
    flights bigint, cancelled bigint, mean_delay numeric, worst_delay int
);
INSERT INTO departures_by_hour VALUES
    ('2013-01-01T10:00Z', 'EWR', 'United', 3, 1, 3.5, 9);
"""

TOTALS = Totals(
    read=3,
    committed=3,
    duplicate=0,
    dead=0,
    dead_by_reason={},
    late=0,
    expired=0,
    filtered=0,
    batches=1,
    drivers=3,
)


def make_report() -> DrillReport:
    """What was sent: three flights of one hour, one of them cancelled."""
    expected = ExpectedResults({"UA": "United"})
    flights = ({"event_id": i, "dep_delay_minutes": d} for i, d in FLIGHTS)
    shared = {"scheduled_at": HOUR, "origin": "EWR", "carrier": "UA"}
    for _ in expected.count({**shared, **flight} for flight in flights):
        pass
    return DrillReport(
        expectation=Expectation(
            sent=3, unique_valid=3, duplicates={}, conflicts=0, poison={"invalid": 0}
        ),
        expected=expected,
        kills=2,
        kills_wanted=2,
        checkpoint_deletions=1,
    )


def failed_checks(
    dsn: str,
    forgery: str,
    totals: Totals = TOTALS,
    change: Callable[[DrillReport], DrillReport] = lambda report: report,
) -> list[str]:
    """Names of the checks that fail once the tables were forged."""
    receipt = Receipt(pipeline="departures", checks=(), totals=totals)
    with psycopg.connect(dsn, autocommit=True, options="-c timezone=UTC") as home:
        home.execute(TABLES.encode())
        home.execute(forgery.encode())
        checked = add_independent_checks(receipt, home, change(make_report()))
    assert len(checked.checks) == 4
    return [check.name for check in checked.failed]


def test_exact_results_pass(home_dsn: str) -> None:
    """Nothing is found where nothing is wrong."""
    assert failed_checks(home_dsn, "SELECT 1") == []


@pytest.mark.parametrize(
    ("forgery", "check"),
    [
        ("DELETE FROM departures WHERE event_id = 'b'", "demo_event_ids"),
        ("INSERT INTO departures TABLE departures LIMIT 1", "demo_event_ids"),
        ("UPDATE departures SET event_id = 'x' WHERE event_id = 'b'", "demo_event_ids"),
        ("DELETE FROM departures_by_hour", "demo_hour_windows"),
        ("UPDATE departures_by_hour SET flights = 4", "demo_hour_windows"),
        ("UPDATE departures_by_hour SET cancelled = 0", "demo_hour_windows"),
        ("UPDATE departures_by_hour SET mean_delay = 3.50001", "demo_hour_windows"),
        ("UPDATE departures_by_hour SET worst_delay = 8", "demo_hour_windows"),
        ("UPDATE departures_by_hour SET airline = 'unknown'", "demo_hour_windows"),
    ],
)
def test_each_forged_table_fails_its_check(
    home_dsn: str, forgery: str, check: str
) -> None:
    """One lost, doubled, invented or altered row is enough."""
    assert failed_checks(home_dsn, forgery) == [check]


@pytest.mark.parametrize(
    "count",
    ["read", "committed", "duplicate", "dead", "late", "expired", "filtered"],
)
def test_each_count_of_the_ledger_is_held_against_what_was_sent(
    home_dsn: str, count: str
) -> None:
    """A ledger that agrees with its tables may still disagree with the producer."""
    totals = replace(TOTALS, **{count: getattr(TOTALS, count) + 1})
    assert failed_checks(home_dsn, "SELECT 1", totals) == ["demo_counts"]


@pytest.mark.parametrize(
    "spare",
    [
        lambda report: replace(report, kills=1),
        lambda report: replace(report, checkpoint_deletions=0),
    ],
)
def test_a_demo_without_its_faults_proves_nothing(
    home_dsn: str, spare: Callable[[DrillReport], DrillReport]
) -> None:
    """A demo in which too little went wrong does not pass."""
    assert failed_checks(home_dsn, "SELECT 1", change=spare) == ["demo_hardship"]
