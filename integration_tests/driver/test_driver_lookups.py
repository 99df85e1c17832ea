"""Enrichment through a real driver: defaults, refreshed copies, versions on record."""

from __future__ import annotations

import json
import signal
import uuid
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import NOON, Sent, sent
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.sinks.protocol.errors import ConfigurationError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = (
    SOURCE
    + """
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
)


@pytest.mark.long
def test_events_are_enriched_from_the_newest_copy_of_a_table(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """No match and a null key give the default; a changed row is picked up."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
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
    assert all({"1: sites", "2: places"} == set(version) for version in versions)
    assert versions[0]["1: sites"] != versions[-1]["1: sites"]
    assert versions[0]["2: places"] == versions[-1]["2: places"]


_TEMPORAL = (
    SOURCE
    + """
    enrich:
      - table: rates
        database: billing
        on: {{site: code, sensor: sensor}}
        select: {{rate: rate}}
        as_of: {{from: valid_from, until: valid_until}}
      - table: rates_now
        database: billing
        on: {{site: code}}
        select: {{rate_now: rate}}
        default: {{rate_now: -1}}
      - table: rates_now
        database: billing
        on: {{site: code}}
        select: {{since: since}}
    outputs:
      - append: {{table: readings}}
"""
)


def test_an_event_gets_the_row_that_was_valid_at_its_time(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, billing_dsn: str
) -> None:
    """Beside the latest value, from another database, and never more than one row."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_TEMPORAL)
    with psycopg.connect(billing_dsn) as billing:
        billing.execute(
            "CREATE TABLE rates (code text, sensor text, rate numeric(6, 2), "
            "valid_from timestamptz, valid_until timestamptz)"
        )
        billing.execute(
            "INSERT INTO rates VALUES "
            "('A', 's1', 1, NULL, '2024-05-01 12:00Z'), "
            "('A', 's1', 2, '2024-05-01 12:00Z', '2024-05-01 13:00Z'), "
            "('A', 's1', 3, '2024-05-01 14:00Z', 'infinity'), "
            "('A', 's2', 9, '-infinity', NULL)"
        )
        billing.execute("CREATE TABLE rates_now (code text, rate integer, since date)")
        billing.execute("INSERT INTO rates_now VALUES ('A', 3, '2024-05-01')")
    hours = {"before": -1, "first": 0, "gap": 1, "last": 2, "later": 2000}
    records = [
        sent(world.contract, event_id=name, site="A", at=NOON + timedelta(hours=hour))
        for name, hour in hours.items()
    ]
    records += [
        sent(world.contract, event_id="other", site="A", sensor="s2"),
        sent(world.contract, event_id="nowhere", site="B"),
    ]
    everything = world.topic.send(records)
    databases = json.dumps({"billing": billing_dsn})

    world.run_to_the_end(environment={"TALLYWEIR_DATABASES": databases})

    world.assert_fates(everything)
    may_day = date(2024, 5, 1)
    assert [
        ("before", 1, 3, may_day),
        ("first", 2, 3, may_day),
        ("gap", None, 3, may_day),
        ("last", 3, 3, may_day),
        ("later", 3, 3, may_day),
        ("nowhere", None, -1, None),
        ("other", 9, 3, may_day),
    ] == world.fetch(
        "SELECT event_id, rate, rate_now, since FROM readings ORDER BY event_id"
    )
    # Two lookups of one table have a version each.
    assert {
        "1: rates in billing",
        "2: rates_now in billing",
        "3: rates_now in billing",
    } == set(world.ledger()[0]["lookups"])

    with psycopg.connect(billing_dsn) as billing:
        billing.execute(
            "INSERT INTO rates VALUES ('A', 's1', 4, '2024-05-01 12:59Z', NULL)"
        )
    with world.driver(environment={"TALLYWEIR_DATABASES": databases}) as driver:
        assert driver.wait() == ConfigurationError.exit_code, driver.text
        assert "LOOKUP_AMBIGUOUS" in driver.text
        assert "{'code': 'A', 'sensor': 's1'} whose ranges overlap" in driver.text


_TOPIC = (
    SOURCE
    + """
    enrich:
      - topic: PROFILES
        schema: reading.v1.avsc
        on: {{site: kafka_key}}
        select: {{height: amount, kind: grade}}
        default: {{height: 0}}
        refresh: 100 milliseconds
    outputs:
      - append: {{table: readings}}
"""
)


@pytest.mark.long
def test_events_are_enriched_from_the_newest_records_of_a_topic(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The newest committed record of a key counts, and one without value removes it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    profiles = WrittenTopic(kafka_bootstrap, f"profiles-{uuid.uuid4().hex[:12]}")
    profiles.create(2)
    world.write_pipeline(_TOPIC.replace("PROFILES", profiles.name))

    def profile(key: str, height: int) -> Sent:
        record = sent(world.contract, amount=height)
        return replace(record, key=key.encode(), partition=ord(key) % 2)

    profiles.send([profile("A", 1), profile("B", 2), profile("A", 3), profile("C", 4)])
    profiles.send_in_transactions(
        [([profile("B", 5)], True), ([profile("B", 6), profile("A", 6)], False)]
    )
    profiles.send([Sent(value=None, key=b"C", partition=ord("C") % 2)])
    everything = world.topic.send(
        [
            sent(world.contract, event_id=f"{site}1", site=site)
            for site in ("A", "B", "C", "D")
        ]
    )
    with world.driver() as driver:
        _await_rows(world, 4)
        profiles.send([profile("C", 7), profile("A", 8)])
        everything |= world.topic.send(
            [
                sent(world.contract, event_id=f"{site}2", site=site)
                for site in ("A", "B", "C")
            ]
        )
        _await_rows(world, 7)
        # Neither a contract's bytes nor a tombstone: nobody may guess what it says.
        profiles.send([Sent(value=b"garbage", key=b"A")])
        world.topic.send([sent(world.contract, event_id="A3", site="A")])
        assert driver.wait() == ConfigurationError.exit_code, driver.text
        assert "LOOKUP_UNREADABLE" in driver.text

    world.assert_verified()
    assert [
        ("A1", 3, "LOW"),
        ("A2", 8, "LOW"),
        ("B1", 5, "LOW"),
        ("B2", 5, "LOW"),
        ("C1", 0, None),
        ("C2", 7, "LOW"),
        ("D1", 0, None),
    ] == world.fetch("SELECT event_id, height, kind FROM readings ORDER BY event_id")
    versions = [
        batch["lookups"][f"1: topic {profiles.name}"] for batch in world.ledger()
    ]
    assert versions[0] != versions[-1]
    assert all(version.startswith("before offsets 0=") for version in versions)


def _await_rows(world: DriverWorld, rows: int) -> None:
    world.await_value(
        "SELECT sum(committed) FROM tallyweir.batch_partition", lambda n: n == rows
    )
