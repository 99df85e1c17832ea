"""The demo keeps its promises, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.command import Command, signal_at
from tallyweir.services.process.endpoints import (
    KAFKA_VARIABLE,
)
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_KEYS = [
    *("sent", "unique", "committed", "duplicate", "dead", "late", "expired"),
    *("driver_kills", "checkpoint_deletions", "verified", "dsn", "bootstrap"),
    "seconds",
]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Command]:
    """A demo that has not begun; nothing of it runs before or after."""
    demo = Command("demo", tmp_path)
    yield demo
    assert demo.processes() == []


def test_the_demo_verifies_and_leaves_nothing_running(demo: Command) -> None:
    """Exit code 0 means: killed, deleted, repeated, poisoned, and still exact."""
    process = demo.start("--events", "20000", "--seed", "7", "--json")
    output, lines = process.communicate()

    assert process.returncode == 0, lines
    summary = json.loads(output.splitlines()[-1])
    assert list(summary) == _KEYS
    assert summary["verified"] is True
    assert summary["unique"] == summary["committed"] == 20_000
    assert (summary["late"], summary["expired"]) == (0, 0)
    assert (summary["driver_kills"], summary["checkpoint_deletions"]) == (2, 1)
    assert summary["sent"] == 20_000 + summary["duplicate"] + summary["dead"]
    assert summary["duplicate"] == pytest.approx(0.2 * 20_000, rel=0.1)
    assert summary["dead"] == pytest.approx(0.01 * 20_000, rel=0.3)
    assert demo.processes() == []
    assert [path.name for path in (demo.directory / "demo").iterdir()] == ["lock"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_driver_and_the_servers(
    demo: Command, number: signal.Signals
) -> None:
    """Whoever interrupts a demo gets the machine back as it was."""
    process = demo.start("--events", "2000")
    signal_at(process, "driver started", number)
    _, lines = process.communicate()

    assert process.returncode == 128 + number, lines
    assert demo.processes() == []


@pytest.mark.long
def test_the_next_demo_ends_what_a_killed_one_left(demo: Command) -> None:
    """SIGKILL cannot be answered; the next start answers it."""
    killed = demo.start("--events", "2000")
    signal_at(killed, "driver started", signal.SIGKILL)
    killed.communicate()
    left = demo.processes()
    assert any("tallyweir.spark_jobs" in process.cmdline() for process in left)

    following = demo.start("--events", "2000")
    signal_at(following, "Kafka at", signal.SIGTERM)
    _, lines = following.communicate()

    assert following.returncode == 128 + signal.SIGTERM, lines
    # Not is_running(): that holds of an orphan too that has ended and is not reaped.
    assert set(left).isdisjoint(demo.processes())


def test_a_used_database_is_refused_and_left_as_it_is(
    demo: Command, empty_dsn: str, kafka_bootstrap: str
) -> None:
    """The demo does not touch a table that it did not make."""
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("CREATE TABLE departures (mine text)")

    variables = {HOME_DSN_VARIABLE: empty_dsn, KAFKA_VARIABLE: kafka_bootstrap}
    process = demo.start("--events", "2000", **variables)
    _, lines = process.communicate()

    assert process.returncode == 78
    assert "DEMO_DATABASE_IN_USE" in lines
    assert "table departures" in lines
    with psycopg.connect(empty_dsn) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' "
            "AND relnamespace = 'public'::regnamespace"
        ).fetchall()
    assert tables == [("departures",)]
