"""Compares the tables with what was sent, by a count that is independent of verify."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow, dict_row

from tallyweir.services.dev.demo.demo_world import PIPELINE, DemoWorld
from tallyweir.services.dev.demo.drill import DrillReport
from tallyweir.services.dev.demo.expected_results import (
    HourOfFlights,
    compare_ids,
    compare_windows,
)
from tallyweir.sinks.postgres.audit import Check, Receipt, verify
from tallyweir.sinks.postgres.audit.receipt import judge
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.services.dev.demo", "independent_checks.sql")
_RULE = "IMPOSSIBLE_DISTANCE"


def verify_results(world: DemoWorld, report: DrillReport) -> Receipt:
    """Verify the demo's pipeline, and add what the demo itself knows about it.

    Args:
        world: The demo's world, in which no driver works any more.
        report: What the drill sent and did.

    Raises:
        RetryableError: The server went away.
    """
    receipt = verify(world.home, PIPELINE, world.databases)
    return add_independent_checks(receipt, world.home, report)


def add_independent_checks(
    receipt: Receipt, home: Connection[TupleRow], report: DrillReport
) -> Receipt:
    """Compare what was sent with the tables and with the receipt's totals."""
    with translated("counting the results"):
        checks = [
            _check_event_ids(home, report),
            _check_windows(home, report),
            _check_counts(home, receipt, report),
        ]
        if report.kills_wanted:
            checks.append(_check_hardship(home, receipt, report))
    for check in checks:
        receipt = receipt.with_check(check)
    return receipt


def _check_event_ids(home: Connection[TupleRow], report: DrillReport) -> Check:
    found = [str(event_id) for (event_id,) in home.execute(_SQL["event_ids"])]
    return judge(
        "demo_event_ids",
        checked=len(found),
        unit="rows",
        violations=compare_ids(report.expected.event_ids, found),
        note="departures holds each valid ID that was sent, once",
    )


def _check_windows(home: Connection[TupleRow], report: DrillReport) -> Check:
    found = {
        (hour, origin, airline): HourOfFlights(
            flights=flights,
            cancelled=cancelled,
            delay_sum=delay_sum,
            worst_delay=worst_delay,
        )
        for (
            hour,
            origin,
            airline,
            flights,
            cancelled,
            delay_sum,
            worst_delay,
        ) in home.execute(_SQL["windows"])
    }
    return judge(
        "demo_hour_windows",
        checked=len(found),
        unit="windows",
        violations=compare_windows(report.expected.windows, found),
        note="departures_by_hour equals the hours added up from the CSV",
    )


def _check_counts(
    home: Connection[TupleRow], receipt: Receipt, report: DrillReport
) -> Check:
    """Compare the count of each kind of message with the ledger and the tables."""
    sent, totals = report.expectation, receipt.totals
    with home.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_SQL["put_aside"], {"pipeline": receipt.pipeline})
        tables = cursor.fetchone()
        cursor.execute(
            _SQL["dead_for_reason"], {"pipeline": receipt.pipeline, "reason": _RULE}
        )
        broke_rule = cursor.fetchone()
    assert tables is not None
    assert broke_rule is not None
    repeats, poison = sum(sent.duplicates.values()), sum(sent.poison.values())
    rows: tuple[tuple[str, int, Any], ...] = (
        ("records read", totals.read, sent.sent),
        ("events committed", totals.committed, sent.unique_valid),
        ("duplicates in the ledger", totals.duplicate, repeats),
        ("duplicates in their table", tables["duplicate"], repeats),
        ("dead letters in the ledger", totals.dead, poison),
        ("dead letters in their table", tables["dead"], poison),
        (f"dead letters for {_RULE}", broke_rule["count"], sent.poison["invalid"]),
        ("late events in the ledger", totals.late, 0),
        ("late events in their table", tables["late"], 0),
        ("expired events in the ledger", totals.expired, 0),
        ("expired events in their table", tables["expired"], 0),
        ("events filtered", totals.filtered, 0),
    )
    return judge(
        "demo_counts",
        checked=len(rows),
        unit="counts",
        violations=[
            f"{found} {what}, {expected} expected"
            for what, found, expected in rows
            if found != expected
        ],
        note="what the producer did to its messages is what became of them",
    )


def _check_hardship(
    home: Connection[TupleRow], receipt: Receipt, report: DrillReport
) -> Check:
    """Check that the demo was hard, because an easy one would prove nothing."""
    row = home.execute(
        _SQL["repeats_of_other_batches"], {"pipeline": receipt.pipeline}
    ).fetchone()
    assert row is not None
    (crossed,) = row
    violations = []
    if report.kills < report.kills_wanted:
        violations.append(
            f"{report.kills} of {report.kills_wanted} kills hit a driver in "
            "mid-batch: the driver was too fast; send more events"
        )
    if report.checkpoint_deletions == 0:
        violations.append("no checkpoint was deleted")
    return judge(
        "demo_hardship",
        checked=report.kills + report.checkpoint_deletions,
        unit="faults",
        violations=violations,
        note=f"{crossed:,} repeats came in a later batch than the event they repeat",
    )
