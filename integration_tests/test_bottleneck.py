"""Ten causes staged for real, and whether each is named."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import PIPELINE, DriverWorld, numbered
from integration_tests.harness.keyed_pipeline import write_python_pipeline
from integration_tests.harness.postgres_driver import PIPELINE as NUMBERS
from integration_tests.harness.readings import Sent
from integration_tests.harness.sharded_numbers import (
    Places,
    publish_three,
    start_driver,
    stop,
)
from integration_tests.harness.transforming_pipeline import write_transforming_pipeline
from sinks.diagnosis import bottleneck
from sinks.diagnosis.bottleneck import BATCHES_MIN, Bottleneck, Cause
from sinks.postgres.audit import read_bottleneck
from sinks.postgres.connection import connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_DEADLINE_S = 90.0
_POLL_S = 0.1
#: Between two events of a slow producer.
_PACE_S = 0.3
_BY_SPARK = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0"}
_SKEWED = """
import time
from datetime import timedelta
from spark_jobs.pipeline import AppendOutput, Pipeline, Source, ValueState, stateful


@stateful(
    table="totals",
    key=["sensor"],
    columns={{"total": "bigint"}},
    state={{"total": ValueState(0)}},
)
def totals(key, events, state, timers, watermark):
    time.sleep(0.01 * events.num_rows)
    state["total"].value += events.num_rows
    yield {{"total": state["total"].value}}


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    outputs=(totals,),
)
"""
_WINDOWS = (
    PIPELINE
    + """
      - window:
          table: by_sensor
          fixed: 1 day
          by: [event_id]
          aggregate: {{readings: count(*)}}
          allowed_lateness: 1 hour
          late: revise
    deduplicate: off
    """
)


def _read(dsn: str, pipeline: str, lag: int) -> Bottleneck | None:
    with connect(dsn, application_name="test reader") as home:
        return read_bottleneck(home, pipeline, lag=lag)


def _name_the_causes(world: DriverWorld, sent_records: int) -> Counter[Cause]:
    """Look after each batch until all is read; count what was named."""
    named: Counter[Cause] = Counter()
    told: list[Bottleneck] = []
    seen, ends_at = 0, time.monotonic() + _DEADLINE_S
    while time.monotonic() < ends_at:
        batches, read = world.fetch(
            "SELECT count(DISTINCT sequence), coalesce(sum(read), 0) "
            "FROM tallyweir.batch_partition"
        )[0]
        if batches >= BATCHES_MIN and batches > seen:
            seen = batches
            found = _read(world.home_dsn, "readings", sent_records - int(read))
            if found is not None:
                named[found.cause] += 1
                told.append(found)
        if read == sent_records:
            print(*told, sep="\n")  # noqa: T201 - shown when the test fails
            return named
        time.sleep(_POLL_S)
    raise AssertionError(f"{world.home_dsn}: not read in time; named {named}")


def _run(world: DriverWorld, records: Sequence[Sent], *, batch: int) -> Counter[Cause]:
    world.topic.send(records)
    with world.driver(batch=batch, environment=_BY_SPARK):
        return _name_the_causes(world, len(records))


@pytest.fixture
def world(tmp_path: Path, kafka_bootstrap: str, home_dsn: str) -> DriverWorld:
    """A pipeline of readings with two partitions."""
    return DriverWorld(tmp_path, kafka_bootstrap, home_dsn)


@pytest.mark.long
def test_slow_python_is_named(world: DriverWorld) -> None:
    """A function of the transform that sleeps for each event."""
    world.pipeline_file = world.directory / "readings.py"
    write_transforming_pipeline(
        world,
        world.pipeline_file,
        """
        import time

        @F.udf("int")
        def slow(number):
            time.sleep(0.05)
            return 1

        return events.withColumn("slept", slow("amount"))
        """,
    )
    named = _run(world, numbered(world, 0, 1_200), batch=200)
    assert named.most_common(1)[0][0] is Cause.SLOW_PYTHON, named


@pytest.mark.long
def test_a_skewed_key_is_named(world: DriverWorld) -> None:
    """All events are of one key, whose function sleeps for each."""
    write_python_pipeline(world, _SKEWED)
    named = _run(world, numbered(world, 0, 600), batch=100)
    assert named.most_common(1)[0][0] is Cause.SKEW, named


@pytest.mark.long
def test_a_storm_of_dead_letters_is_named(world: DriverWorld) -> None:
    """Half of what is read does not decode."""
    broken = [
        Sent(value=b"none", partition=n % 2, fate="BAD_MAGIC") for n in range(300)
    ]
    good = numbered(world, 0, 300)
    mixed = [one for pair in zip(broken, good, strict=True) for one in pair]
    named = _run(world, mixed, batch=100)
    assert set(named) == {Cause.DEAD_LETTERS}


@pytest.mark.long
def test_small_batches_are_named(world: DriverWorld) -> None:
    """Twenty events at a time, of some hundred that wait."""
    named = _run(world, numbered(world, 0, 300), batch=20)
    assert named.most_common(1)[0][0] is Cause.SMALL_BATCHES, named


@pytest.mark.long
def test_too_few_partitions_are_named(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """One, where eight tasks could run."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    records = numbered(world, 0, 192_000, partitions=(0,))
    world.topic.send(records)
    eight = {**_BY_SPARK, "TALLYWEIR_SPARK_MASTER": "local[8]"}
    with world.driver(batch=24_000, environment=eight):
        named = _name_the_causes(world, len(records))
    assert named.most_common(1)[0][0] is Cause.FEW_PARTITIONS, named


@pytest.mark.long
def test_a_slow_source_is_named(world: DriverWorld) -> None:
    """A few events now and then, for which it waits."""
    pace = threading.Event()
    with world.driver():
        for number in range(8):
            world.topic.send(numbered(world, number, 1))
            world.await_read(number + 1)
            pace.wait(_PACE_S)
        found = _read(world.home_dsn, "readings", 0)
    assert found is not None
    assert found.cause is Cause.SOURCE, found
    assert not found.is_trouble


@pytest.mark.long
def test_vacuum_that_is_held_back_is_named(
    world: DriverWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old snapshot, while batches change the same groups again and again."""
    monkeypatch.setattr(bottleneck, "_XMIN_S", 1.0)
    world.write_pipeline(_WINDOWS)
    same = numbered(world, 0, 2_000)
    with psycopg.connect(world.home_dsn, application_name="a report") as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM pg_class").fetchone()
        named = _run(world, same * 6, batch=2_000)
    assert named[Cause.VACUUM], named
    assert named.most_common(1)[0][0] is Cause.VACUUM, named


def _await_cause(dsn: str, cause: Cause) -> Bottleneck:
    ends_at = time.monotonic() + _DEADLINE_S
    while time.monotonic() < ends_at:
        found = _read(dsn, NUMBERS, 1_000_000)
        if found is not None and found.cause is cause:
            return found
        time.sleep(_POLL_S)
    raise AssertionError(f"{cause} was not named; the last was {found}")


def test_a_lock_on_a_table_is_named_with_its_holder(places: Places) -> None:
    """Within seconds, and while the batch still waits."""
    driver = start_driver(places.home, places.billing)
    publishing = threading.Thread(target=publish_three, args=(driver, 6))
    with psycopg.connect(places.home, application_name="a migration") as holder:
        holder.execute("LOCK TABLE numbers")
        publishing.start()
        try:
            found = _await_cause(places.home, Cause.LOCK)
        finally:
            holder.rollback()
            publishing.join()
            stop(driver)
    assert "a migration" in found.saw
    assert "numbers" in found.saw
    after = _read(places.home, NUMBERS, 1_000_000)
    assert after is None or after.cause is not Cause.LOCK


def test_a_branch_in_doubt_is_named(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decided, and its driver died before it was committed."""
    monkeypatch.setattr(bottleneck, "_IN_DOUBT_S", 1.0)
    places.kill_after_decision()
    found = _await_cause(places.home, Cause.IN_DOUBT)
    assert "indoubt list" in found.remedy
    stop(start_driver(places.home, places.billing))
    after = _read(places.home, NUMBERS, 1_000_000)
    assert after is None or after.cause is not Cause.IN_DOUBT


@pytest.mark.long
def test_a_slow_disk_is_named(world: DriverWorld) -> None:
    """Each COMMIT of a batch takes a second and a half, and the next waits for it."""
    records = numbered(world, 0, 2_000)
    world.topic.send(records[:10])
    world.run_to_the_end()
    world.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON tallyweir.batch_measures "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()",
    )
    world.topic.send(records[10:])
    with world.driver(batch=250, environment=_BY_SPARK):
        named = _name_the_causes(world, len(records))
    assert named.most_common(1)[0][0] is Cause.SLOW_DISK, named
