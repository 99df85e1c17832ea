"""Enrichment through a real driver: defaults, refreshed copies, versions on record."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import sent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.avsc
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    enrich:
      - table: sites
        on: {{site: code}}
        select: {{place: name, height: metres}}
        default: {{place: nowhere}}
        refresh: 100 milliseconds
      - {{table: places, on: {{place: name}}, select: {{country: country}}}}
    outputs:
      - append: {{table: readings}}
      - window:
          table: readings_by_place
          fixed: 1 hour
          by: [place, country]
          aggregate: {{readings: count(*)}}
"""


def test_events_are_enriched_from_the_newest_copy_of_a_table(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """No match and a null key give the default; a changed row is picked up."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.write_pipeline(_PIPELINE)
    world.execute(
        "CREATE TABLE sites (code text, name text, metres numeric(6, 2))",
        # Null keys match nothing, so two of them are not ambiguous.
        "INSERT INTO sites VALUES ('A', 'roof', 12.50), (NULL, 'x', 1), (NULL, 'y', 2)",
        "CREATE TABLE places (name text PRIMARY KEY, country text)",
        "INSERT INTO places VALUES ('roof', 'NL'), ('cellar', 'BE')",
    )
    sites = {"a1": "A", "b1": "B", "null1": None}
    everything = world.topic.send(
        [sent(world.contract, event_id=name, site=site) for name, site in sites.items()]
    )
    with world.driver() as driver:
        _await_rows(world, 3)
        world.execute(
            "UPDATE sites SET name = 'cellar', metres = -3 WHERE code = 'A'",
            "INSERT INTO sites VALUES ('B', NULL, NULL)",
        )
        everything |= world.topic.send(
            [
                sent(world.contract, event_id="a2", site="A"),
                sent(world.contract, event_id="b2", site="B", partition=1),
            ]
        )
        _await_rows(world, 5)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text

    world.assert_fates(everything)
    assert [
        ("a1", "roof", 12.5, "NL"),
        ("a2", "cellar", -3, "BE"),
        ("b1", "nowhere", None, None),
        ("b2", "nowhere", None, None),
        ("null1", "nowhere", None, None),
    ] == world.fetch(
        "SELECT event_id, place, height, country FROM readings ORDER BY event_id"
    )
    assert [("cellar", "BE", 1), ("nowhere", None, 3), ("roof", "NL", 1)] == (
        world.fetch("SELECT place, country, readings FROM readings_by_place ORDER BY 1")
    )
    versions = [batch["lookups"] for batch in world.ledger()]
    assert all({"sites", "places"} == set(version) for version in versions)
    assert versions[0]["sites"] != versions[-1]["sites"]
    assert versions[0]["places"] == versions[-1]["places"]


def _await_rows(world: DriverWorld, rows: int) -> None:
    world.await_value(
        "SELECT sum(committed) FROM tallyweir.batch_partition", lambda n: n == rows
    )
