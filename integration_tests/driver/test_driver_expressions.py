"""Expressions through a real driver: what is refused at the start, what arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.harness.driver_world import PIPELINE, DriverWorld, numbered
from integration_tests.harness.readings import NOON

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_MISTYPED = """
    validate:
      TOO_MUCH: "upper(sensor) < 3"
    filter: "abs(amount)"
"""
_LITERAL = """
      - window:
          table: literals
          fixed: 1 hour
          aggregate:
            home: "max('${{env:HOME}} ${{system:user.name}} ${{version}}')"
"""


def test_wrong_types_are_told_at_once_before_anything_is_claimed(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Text is not compared with numbers, and a number is no condition."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(f"{PIPELINE}{_MISTYPED}")
    driver = world.run_to_the_end(code=78)
    assert driver.lines[0] == "PIPELINE_EXPRESSION_TYPE"
    assert "'upper(sensor) < 3'" in driver.text
    assert "'abs(amount)' is of type integer" in driver.text
    assert [] == world.fetch("SELECT FROM tallyweir.batch")


def test_what_stands_in_a_literal_arrives_as_it_is_written(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Else the driver's environment, where secrets are, would land in a table."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(f"{PIPELINE}{_LITERAL}")
    everything = world.topic.send(numbered(world, 0, 3))
    world.run_to_the_end()
    world.assert_fates(everything)
    assert world.fetch("SELECT window_start, home FROM literals") == [
        (NOON, "${env:HOME} ${system:user.name} ${version}")
    ]
