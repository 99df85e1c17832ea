"""The demo keeps its promises, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from services.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    state_directory,
)
from services.endpoints import HOME_DSN_VARIABLE, KAFKA_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_KEYS = [
    *("sent", "unique", "committed", "duplicate", "dead", "late", "expired"),
    *("driver_kills", "checkpoint_deletions", "verified", "dsn", "bootstrap"),
    "seconds",
]


class Demo:
    """``tallyweir demo`` with a state directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # What was fetched never changes: share it instead of a download.
        for shared in ("jars", "datasets"):
            (directory / shared).symlink_to(state_directory() / shared)

    def start(self, *options: str, **variables: str) -> subprocess.Popen[str]:
        """Start the demo; it brings its own servers unless ``variables`` name some."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in {HOME_DSN_VARIABLE, KAFKA_VARIABLE}
            and not name.startswith("PG")
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "services.cli", "demo", *options],
            cwd=ROOT,
            env={
                **inherited,
                "PYTHONPATH": str(ROOT),
                STATE_DIRECTORY_VARIABLE: str(self.directory),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Whatever still runs in the state directory."""
        found = []
        for process in psutil.process_iter():
            try:
                command, place = process.cmdline(), process.cwd()
                variables = process.environ()
            except psutil.Error:
                continue
            told = variables.get(STATE_DIRECTORY_VARIABLE, "")
            words = [*command, place, told]
            if any(str(self.directory) in word for word in words):
                found.append(process)
        return found


def signal_at(
    process: subprocess.Popen[str], words: str, number: signal.Signals
) -> None:
    """Send the signal as soon as the demo has said the words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            process.send_signal(number)
            return
    pytest.fail(f"the demo ended before it said {words!r}")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo that has not begun; nothing of it runs before or after."""
    demo = Demo(tmp_path)
    yield demo
    assert demo.processes() == []


def test_the_demo_verifies_and_leaves_nothing_running(demo: Demo) -> None:
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_driver_and_the_servers(
    demo: Demo, number: signal.Signals
) -> None:
    """Whoever interrupts a demo gets the machine back as it was."""
    process = demo.start("--events", "2000")
    signal_at(process, "driver started", number)
    _, lines = process.communicate()

    assert process.returncode == 128 + number, lines
    assert demo.processes() == []


def test_the_next_demo_ends_what_a_killed_one_left(demo: Demo) -> None:
    """SIGKILL cannot be answered; the next start answers it."""
    killed = demo.start("--events", "2000")
    signal_at(killed, "driver started", signal.SIGKILL)
    killed.communicate()
    left = demo.processes()
    assert any("spark_jobs" in process.cmdline() for process in left)

    following = demo.start("--events", "2000")
    signal_at(following, "Kafka at", signal.SIGTERM)
    _, lines = following.communicate()

    assert following.returncode == 128 + signal.SIGTERM, lines
    assert [process for process in left if process.is_running()] == []


def test_a_used_database_is_refused_and_left_as_it_is(
    demo: Demo, empty_dsn: str, kafka_bootstrap: str
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
