"""A reader's snapshot holds all of a batch or nothing of it, whenever it is taken."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import psycopg

from integration_tests.harness.postgres_driver import (
    SECOND_US,
    PostgresDriver,
    append_table,
    counted_windows,
    layout_of,
)
from tallyweir.sinks.postgres.server.connection import connect

SNAPSHOTS = 1_000
SEQUENCES_MIN = 50

_START = datetime(2026, 3, 1, tzinfo=UTC)
_BATCH_EVENTS = 7

_WINDOWS = counted_windows("by_minute")
_LAYOUT = layout_of(append_table("events", at="timestamp with time zone"), _WINDOWS)

#: One statement each, so that only the snapshot can make them agree.
_QUESTIONS = (
    "SELECT coalesce(max(next_offset), 0) FROM tallyweir.partition_progress",
    "SELECT coalesce(sum(committed), 0)::bigint FROM tallyweir.batch_partition",
    "SELECT count(*) FROM events",
    "SELECT count(DISTINCT kafka_offset) FROM events",
    "SELECT coalesce(max(kafka_offset) + 1, 0) FROM events",
    "SELECT coalesce(sum(events), 0)::bigint FROM by_minute",
    "SELECT coalesce(max(sequence), 0) * %(events)s FROM tallyweir.batch",
    "SELECT last_sequence * %(events)s FROM tallyweir.pipeline",
)


def _publish_until(driver: PostgresDriver, stop: threading.Event) -> None:
    while not stop.is_set():
        plan = driver.plan(_BATCH_EVENTS)
        (covered,) = plan.ranges
        times = [
            _START + timedelta(seconds=offset)
            for offset in range(covered.from_offset, covered.until_offset)
        ]
        rows = driver.positioned(plan, [(at,) for at in times])
        minutes = [at.replace(second=0) for at in times]
        minute = timedelta(minutes=1)
        windows = [(start, start + minute, 1, 1) for start in minutes]
        tally = driver.stage(
            plan,
            {"output_0": rows, "output_1": windows},
            event_time_max_us=int(times[-1].timestamp()) * SECOND_US,
        )
        driver.publish(plan, tally)


def _take_snapshot(connection: psycopg.Connection[tuple[int, ...]]) -> list[int]:
    answers = []
    with connection.transaction():
        for question in _QUESTIONS:
            row = connection.execute(
                question.encode(), {"events": _BATCH_EVENTS}
            ).fetchone()
            assert row is not None
            answers.append(row[0])
    return answers


def test_results_offsets_windows_and_ledger_agree_in_every_snapshot(
    home_dsn: str,
) -> None:
    """In a thousand snapshots taken while batches are published, all counts agree."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    stop = threading.Event()
    publisher = threading.Thread(target=_publish_until, args=(driver, stop))
    seen: set[int] = set()
    snapshots = 0
    with connect(home_dsn, application_name="test reader") as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        publisher.start()
        try:
            # Publishing may be slower than reading on a busy machine.
            while snapshots < SNAPSHOTS or (
                len(seen) < SEQUENCES_MIN and publisher.is_alive()
            ):
                answers = _take_snapshot(reader)
                assert 1 == len(set(answers)), dict(
                    zip(_QUESTIONS, answers, strict=True)
                )
                seen.add(answers[0])
                snapshots += 1
        finally:
            stop.set()
            publisher.join()
    assert len(seen) >= SEQUENCES_MIN, f"only {len(seen)} sequences were observed"
