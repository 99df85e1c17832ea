"""An update that is watched goes back by itself when its batches are worse."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.harness.command import run_command
from integration_tests.harness.driver_world import PIPELINE, DriverWorld, numbered
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
)
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

_RULED = f'{PIPELINE}    validate: {{{{NOT_NEGATIVE: "amount < 0"}}}}\n'


def test_a_driver_rolls_a_worse_version_back_and_ends(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The dead letters of its batches stay; nothing is read again or twice."""
    share_fetched(tmp_path)
    variables = {
        KAFKA_VARIABLE: kafka_bootstrap,
        HOME_DSN_VARIABLE: home_dsn,
        STATE_DIRECTORY_VARIABLE: str(tmp_path),
    }
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.topic.send(numbered(world, 0, 200))
    world.run_to_the_end(batch=100)
    former = world.pipeline_file.read_text("utf-8")
    world.write_pipeline(_RULED)
    told = run_command(
        *("update", str(world.pipeline_file), "--reason=a rule", "--watch=3"),
        variables=variables,
    )
    assert "readings: compatible" in told
    world.topic.send(numbered(world, 200, 400))
    with world.driver(batch=120) as driver:
        assert driver.wait() == 78, driver.text
        assert "ROLLED_BACK" in driver.text
    assert [(1, None), (2, None), (3, 1)] == world.fetch(
        "SELECT version, rolls_back_to FROM tallyweir.pipeline_version ORDER BY 1"
    )
    dead = world.value("SELECT count(*) FROM tallyweir.dead_letter")
    assert 100 <= dead < 400
    with world.driver(once=True) as driver:
        assert driver.wait() == 78, driver.text
        assert "VERSION_SUPERSEDED" in driver.text
    world.pipeline_file.write_text(former)
    world.run_to_the_end()
    assert 600 - dead == world.value("SELECT count(*) FROM readings")
    world.assert_verified()
