"""A driver whose offsets are moved goes on from there by itself, and counts exactly."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from integration_tests.harness.driver_world import PIPELINE, DriverWorld, numbered
from integration_tests.harness.readings import sent
from tallyweir.services.cli.app import build_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_STRICT = f"{PIPELINE}    validate: {{{{TOO_MUCH: 'amount < 1000'}}}}\n"


@pytest.mark.long
def test_dead_letters_become_results_when_they_are_read_again(
    tmp_path: Path,
    kafka_bootstrap: str,
    home_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule was wrong; what was committed by then stays, and counts once."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", kafka_bootstrap)
    world.write_pipeline(_STRICT)
    world.topic.send(
        [
            *numbered(world, 0, 100),
            *(sent(world.contract, event_id=f"m{n}", amount=5000) for n in range(7)),
            *numbered(world, 50, 10),
        ]
    )
    world.run_to_the_end(batch=60)
    assert world.value("SELECT count(*) FROM tallyweir.dead_letter") == 7
    world.write_pipeline(PIPELINE)
    with world.driver(batch=60) as driver:
        driver.wait_for("driver started")
        driver.mark()
        where = f"{world.topic.name}:0=30"
        told = _said("reset", "--to-offset", where, "--reason", "wrong rule")
        assert "-> 30: up to 32 records are read again" in told
        assert "7 are dead letters: they get another chance" in told
        assert "are rows of readings: they stay" in told
        world.topic.send(numbered(world, 200, 20))
        driver.wait_for("driver started")
        world.await_value(
            "SELECT count(*) FROM public.readings", lambda n: n == 100 + 7 + 20
        )
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    world.assert_verified()
    assert world.value("SELECT count(DISTINCT event_id) FROM public.readings") == 127
    shown = json.loads(_said("show", "--json"))["partitions"]
    assert [0, 0] == [part["lag"] for part in shown]
    assert "lag" in _said("show")
    before = world.fetch("SELECT * FROM tallyweir.partition_progress")
    told = _said(
        "reset", "--to-time", "2020-01-01T00:00:00Z", "--reason", "all", "--dry-run"
    )
    assert told.count("-> 0: up to") == 2
    assert before == world.fetch("SELECT * FROM tallyweir.partition_progress")


def _said(verb: str, *arguments: str) -> str:
    result = CliRunner().invoke(
        build_app(), ["offsets", verb, "readings", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output
