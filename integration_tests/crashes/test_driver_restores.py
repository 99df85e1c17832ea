"""The home database goes back under a real driver, with Kafka far ahead.

With it go windows and keyed state: the events that wait in a join.
"""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.postgres_cluster import ArchivedServer
from integration_tests.harness.postgres_driver import Row, execute
from integration_tests.harness.readings import NOON, Sent, sent
from tallyweir.sinks.postgres.schema.migrations import migrate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_RECORDS = 3_000
_BATCH = 100
_CLAIM_LOST = 70

_PIPELINE = (
    SOURCE
    + """
    outputs:
      - append: {{table: readings}}
      - window:
          table: by_sensor
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
      - join:
          table: neighbours
          on: [sensor]
          within: 1 minute
          left: {{where: amount % 2 = 0, select: {{even: event_id}}}}
          right: {{where: amount % 2 = 1, select: {{odd: event_id}}}}
"""
)

_FINAL_TABLES = (
    "SELECT * FROM readings ORDER BY kafka_partition, kafka_offset",
    "SELECT * FROM by_sensor ORDER BY window_start, sensor",
    # Whoever waited for a neighbour in state that went back still finds it, once.
    "SELECT sensor, even, odd FROM neighbours ORDER BY even, odd",
    (
        "SELECT kafka_partition, kafka_offset, reason, payload "
        "FROM tallyweir.dead_letter ORDER BY 1, 2"
    ),
    (
        "SELECT kafka_partition, kafka_offset, event_id "
        "FROM tallyweir.duplicate_event ORDER BY 1, 2"
    ),
    (
        "SELECT partition, next_offset, event_time_max "
        "FROM tallyweir.partition_progress ORDER BY 1"
    ),
    "SELECT watermark FROM tallyweir.pipeline",
)


@pytest.fixture
def archived(tmp_path: Path) -> Iterator[ArchivedServer]:
    """A server of the test's own that can be restored."""
    directory = tmp_path / "archived"
    directory.mkdir()
    server = ArchivedServer(directory)
    server.start()
    yield server
    server.server.stop()


@pytest.mark.long
def test_a_database_restored_under_its_driver_heals(
    tmp_path: Path, kafka_bootstrap: str, archived: ArchivedServer
) -> None:
    """To before its claim, the driver stops; to after it, it goes on by itself."""
    world = DriverWorld(tmp_path, kafka_bootstrap, archived.dsn)
    world.write_pipeline(_PIPELINE)
    everything = world.topic.send(_readings(world))
    undisturbed = _run_undisturbed(world, archived)
    # A server that is still replaying is not taken for the one that was restored.
    world.home_dsn = make_conninfo(archived.dsn, target_session_attrs="read-write")
    migrate(world.home_dsn)
    archived.take_backup()
    before_the_claim = archived.wal_position()

    with world.driver(batch=_BATCH) as first:
        for _ in range(3):
            first.wait_for("batch published")
        in_between = archived.wal_position()
        reached = world.value("SELECT last_sequence FROM tallyweir.pipeline")
        for _ in range(2):
            first.wait_for("batch published")
        archived.archive_everything()
        archived.restore_to_position(before_the_claim)
        assert first.wait() == _CLAIM_LOST, first.text
        assert "CLAIM_LOST" in first.text
        assert "Traceback" not in first.text

    with world.driver(batch=_BATCH) as second:
        second.wait_for("batch published")
        archived.restore_to_position(in_between)
        restored = world.value("SELECT last_sequence FROM tallyweir.pipeline")
        assert abs(restored - reached) <= 2
        second.wait_for("starting over")
        world.await_value(
            "SELECT sum(read) FROM tallyweir.batch_partition",
            lambda n: n == len(everything),
        )
        second.send(signal.SIGTERM)
        assert second.wait() == 0, second.text
    assert undisturbed == _final_tables(world)
    world.assert_fates(everything)


def _readings(world: DriverWorld) -> list[Sent]:
    """Make readings of a day, in order, with repeats and dead ones among them."""
    records: list[Sent] = []
    for number in range(_RECORDS):
        partition = number % 2
        reading = sent(
            world.contract,
            event_id=f"n{number}",
            sensor=f"s{number % 3}",
            at=NOON + dt.timedelta(seconds=10 * number),
            amount=number % 100,
            partition=partition,
        )
        if number % 20 == 7:
            reading = Sent(value=None, fate="EMPTY_PAYLOAD", partition=partition)
        records.append(reading)
        if number % 10 == 3:
            again = Sent(value=reading.value, fate="duplicate", partition=partition)
            records.append(again)
    return records


def _run_undisturbed(world: DriverWorld, archived: ArchivedServer) -> list[list[Row]]:
    execute(archived.dsn, "CREATE DATABASE undisturbed")
    world.home_dsn = make_conninfo(archived.dsn, dbname="undisturbed")
    world.run_to_the_end()
    tables = _final_tables(world)
    assert all(tables), "a drill compares nothing that stays empty"
    return tables


def _final_tables(world: DriverWorld) -> list[list[Row]]:
    return [world.fetch(statement) for statement in _FINAL_TABLES]
