"""A driver whose pipeline is restored reads again, and ends where it would have."""

from __future__ import annotations

import datetime as dt
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import NOON, Sent, sent
from tallyweir.services.cli.app import build_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_WINDOWS = f"""{SOURCE}
    deduplicate: {{{{horizon: 2 days}}}}
    outputs:
      - append: {{{{table: readings}}}}
      - window:
          table: by_hour
          fixed: 1 hour
          by: [sensor]
          aggregate: {{{{readings: count(*), total: sum(amount)}}}}
      - window:
          table: by_pause
          session: {{{{gap: 10 minutes}}}}
          aggregate: {{{{readings: count(*)}}}}
"""
_RESULTS = (
    "SELECT window_start, sensor, readings, total, pane, final FROM by_hour ORDER BY 1",
    "SELECT window_start, window_end, readings, final FROM by_pause ORDER BY 1",
    "SELECT event_id FROM public.readings ORDER BY 1",
)


def _hours(world: DriverWorld, first: int, hours: int) -> list[Sent]:
    """Ten readings an hour, each sent twice."""
    return [
        sent(
            world.contract,
            event_id=f"h{hour}-{number}",
            amount=number,
            at=NOON + dt.timedelta(hours=hour, minutes=6 * number),
        )
        for hour in range(first, first + hours)
        for number in range(10)
        for _ in range(2)
    ]


@pytest.mark.long
def test_windows_rows_and_ids_go_back_together_and_heal(
    tmp_path: Path,
    kafka_bootstrap: str,
    home_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a driver works; all is as it was without the restore, and counts once."""
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", kafka_bootstrap)
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_WINDOWS)
    with world.driver(batch=30) as driver:
        world.topic.send(_hours(world, 0, 4))
        world.await_read(80)
        assert "is of batch" in _said(
            "snapshot", "take", "readings", "amid", "--reason", "a test"
        )
        amid = [world.fetch(query) for query in _RESULTS]
        world.topic.send(_hours(world, 4, 60))
        world.await_read(80 + 1200)
        undisturbed = [world.fetch(query) for query in _RESULTS]
        assert undisturbed != amid
        restore = ("restore", "readings", "amid", "--reason", "a test")
        told = _said(*restore, "--dry-run")
        assert "which read 1,200 records and committed 600" in told
        assert undisturbed == [world.fetch(query) for query in _RESULTS]
        driver.mark()
        assert "600 rows of readings" in _said(*restore)
        driver.wait_for("driver started")
        world.await_read(80 + 1200)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert undisturbed == [world.fetch(query) for query in _RESULTS]
    world.assert_verified()
    # Nobody works: what is there now is the snapshot itself.
    _said(*restore)
    assert amid == [world.fetch(query) for query in _RESULTS]
    world.assert_verified()
    world.run_to_the_end()
    assert undisturbed == [world.fetch(query) for query in _RESULTS]
    world.assert_verified()
    assert "amid" in _said("snapshot", "list", "readings")
    assert "is dropped" in _said("snapshot", "drop", "readings", "amid")


def _said(*arguments: str) -> str:
    result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
