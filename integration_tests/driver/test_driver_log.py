"""A driver's warnings and errors are found in the home, with the batch at hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.driver_world import DriverWorld
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.sinks.postgres.records import driver_log
from tallyweir.sinks.postgres.records.driver_log import DriverLog, read_driver_log
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import HOME


def _keep(dsn: str, *lines: Mapping[str, object]) -> None:
    log = DriverLog()
    for line in lines:
        log.take({"level": "warning", **line})
    log.open(dsn, PIPELINE)
    log.close()


def test_a_line_is_about_its_batch_or_about_the_one_at_hand(
    home_dsn: str,
    scenario: LedgerScenario,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And the command shows those of one batch."""
    _keep(
        home_dsn, {"event": "early", "sequence": 2}, {"event": "now", "saw": "a lock"}
    )
    with connect(home_dsn, application_name="test") as home:
        newest, oldest = read_driver_log(home, PIPELINE, limit=10)
    assert (oldest.event, oldest.sequence) == ("early", 2)
    assert (newest.event, newest.sequence) == ("now", scenario.sequence + 1)
    line = CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: home_dsn}
    )
    code, out, error = line.run("logs", PIPELINE, "--batch", "4")
    assert code == 0, error
    assert out.endswith("warning batch 4: now saw=a lock\n")
    assert out.count("\n") == 1


def test_only_the_newest_lines_are_kept(
    home_dsn: str, scenario: LedgerScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a driver complains."""
    assert scenario.sequence == 3
    monkeypatch.setattr(driver_log, "KEPT", 3)
    for number in range(3):
        _keep(home_dsn, *({"event": f"{number}-{part}"} for part in range(2)))
    with psycopg.connect(home_dsn) as home:
        rows = home.execute("SELECT event FROM tallyweir.driver_log ORDER BY number")
        assert [event for (event,) in rows] == ["1-1", "2-0", "2-1"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_why_a_driver_ended_is_kept(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Its host may be gone when somebody asks."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.run_to_the_end()
    world.topic.delete()
    assert world.try_to_the_end().code != 0
    with connect(world.home_dsn, application_name="test") as home:
        newest = read_driver_log(home, "readings", limit=1)[0]
    assert (newest.level, newest.event) == ("error", "driver ended")
    assert newest.detail["error_code"] == "TOPIC_MISSING"
