"""Ten causes staged for real, and whether each is named within three batches."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import PIPELINE, DriverWorld, numbered
from integration_tests.harness.evidence import (
    Evidence,
    assert_named,
    each_look,
    evidence_of,
)
from integration_tests.harness.measured_pipeline import (
    BY_DRIVER,
    BY_SPARK,
    write_sleeping_transform,
    write_totals,
)
from integration_tests.harness.postgres_driver import PIPELINE as NUMBERS
from integration_tests.harness.readings import Sent, sent
from integration_tests.harness.sharded_numbers import (
    Places,
    publish_three,
    start_driver,
    stop,
)
from tallyweir.services.produce.producer import EventProducer
from tallyweir.sinks.diagnosis.bottleneck import Cause

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_DEADLINE_S = 90.0
_POLL_S = 0.1
#: Seconds between two events of a slow producer, and of a steady one.
_SLOW_PACE_S = 0.3
_STEADY_PACE_S = 0.02
#: A transaction is old after a minute.
_OLD_S = 60.0
_LAG = 1_000_000
#: After so many batches a driver that is never done was watched for long enough.
_LOOKS = 10
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


def _looks(
    world: DriverWorld,
    records: Sequence[Sent],
    *,
    batch: int,
    environment: Mapping[str, str] = BY_SPARK,
) -> list[Evidence]:
    """Look after each batch of a driver while another one waits for it."""
    world.topic.send(records)
    with world.driver(batch=batch, environment=environment):
        looks = each_look(world, records)
        return list(itertools.takewhile(lambda look: look.lag >= batch, looks))


@pytest.fixture
def world(tmp_path: Path, kafka_bootstrap: str, home_dsn: str) -> DriverWorld:
    """A pipeline of readings with two partitions."""
    return DriverWorld(tmp_path, kafka_bootstrap, home_dsn)


@pytest.mark.long
def test_slow_python_is_named(world: DriverWorld) -> None:
    """A function of the transform that sleeps for each event."""
    write_sleeping_transform(world, 0.005)
    looks = _looks(world, numbered(world, 0, 14_000), batch=2_000)
    assert_named(looks, Cause.SLOW_PYTHON)


@pytest.mark.long
def test_a_skewed_key_is_named(world: DriverWorld) -> None:
    """Of ten events nine are of one key, and the function takes its time for each."""
    write_totals(world, "time.sleep(0.01 * events.num_rows)")
    records = [
        sent(
            world.contract,
            sensor=f"s{number % 70}" if number % 10 == 0 else "hot",
            event_id=f"n{number}",
            partition=number % 2,
        )
        for number in range(1_000)
    ]
    assert_named(_looks(world, records, batch=100), Cause.SKEW)


@pytest.mark.long
def test_a_storm_of_dead_letters_is_named(world: DriverWorld) -> None:
    """Half of what is read does not decode."""
    broken = [
        Sent(value=b"none", partition=n % 2, fate="BAD_MAGIC") for n in range(300)
    ]
    good = numbered(world, 0, 300)
    mixed = [one for pair in zip(broken, good, strict=True) for one in pair]
    assert_named(_looks(world, mixed, batch=100), Cause.DEAD_LETTERS)


@pytest.mark.long
def test_small_batches_are_named(world: DriverWorld) -> None:
    """Twenty events at a time, of some hundred that wait."""
    assert_named(_looks(world, numbered(world, 0, 300), batch=20), Cause.SMALL_BATCHES)


@pytest.mark.long
def test_too_few_partitions_are_named(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """One, where eight tasks could run."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    records = numbered(world, 0, 240_000, partitions=(0,))
    eight = {**BY_SPARK, "TALLYWEIR_SPARK_MASTER": "local[8]"}
    looks = _looks(world, records, batch=24_000, environment=eight)
    assert_named(looks, Cause.FEW_PARTITIONS)


@pytest.mark.long
def test_a_plain_backlog_has_none_of_the_causes(world: DriverWorld) -> None:
    """What takes most of the time is told, and nobody is blamed."""
    looks = _looks(world, numbered(world, 0, 240_000), batch=24_000)
    assert_named(looks, Cause.STEP)


@pytest.mark.long
def test_a_slow_source_is_named(world: DriverWorld) -> None:
    """A few events now and then, for which it waits."""
    pace = threading.Event()
    looks = []
    with world.driver():
        for number in range(8):
            world.topic.send(numbered(world, number, 1))
            world.await_read(number + 1)
            pace.wait(_SLOW_PACE_S)
            looks.append(evidence_of(world.home_dsn, "readings", lag=0))
    assert_named(looks[2:], Cause.SOURCE)
    assert not looks[-1].causes[0].is_trouble


@pytest.mark.long
def test_vacuum_that_is_held_back_is_named(world: DriverWorld) -> None:
    """A report of more than a minute, while batches change the same groups."""
    world.write_pipeline(_WINDOWS)
    same = numbered(world, 0, 2_000) * 20
    sent_records = list(same)
    world.topic.send(same)
    own = {**BY_DRIVER, "TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "2000"}
    looks: list[Evidence] = []
    with psycopg.connect(world.home_dsn, application_name="a report") as report:
        report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        report.execute("SELECT count(*) FROM pg_class").fetchone()
        with world.driver(batch=2_000, environment=own):
            for look in each_look(world, sent_records):
                looks += [look] if look.server.xmin_s >= _OLD_S else []
                if len(looks) == _LOOKS:
                    break
                if look.lag < len(same) // 2:
                    world.topic.send(same)
                    sent_records += same
    assert_named(looks, Cause.VACUUM)
    assert "a report" in looks[0].causes[0].saw


def _await_cause(dsn: str, cause: Cause) -> Evidence:
    ends_at = time.monotonic() + _DEADLINE_S
    while time.monotonic() < ends_at:
        found = evidence_of(dsn, NUMBERS, _LAG)
        if found.cause is cause:
            return found
        time.sleep(_POLL_S)
    raise AssertionError(f"{cause} was not named; the last was {found.causes}")


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
    assert "a migration" in found.causes[0].saw
    assert "numbers" in found.causes[0].saw
    found.record(Cause.LOCK)
    assert evidence_of(places.home, NUMBERS, _LAG).cause is not Cause.LOCK


def test_a_branch_in_doubt_is_named(places: Places) -> None:
    """Decided, and its driver died before it was committed."""
    places.kill_after_decision()
    found = _await_cause(places.home, Cause.IN_DOUBT)
    assert "indoubt list" in found.causes[0].remedy
    found.record(Cause.IN_DOUBT)
    stop(start_driver(places.home, places.billing))
    assert evidence_of(places.home, NUMBERS, _LAG).cause is not Cause.IN_DOUBT


@pytest.mark.long
def test_a_slow_disk_is_named(world: DriverWorld) -> None:
    """Its log takes a tenth of a second longer to be flushed; events come steadily."""
    database = psycopg.conninfo.conninfo_to_dict(world.home_dsn)["dbname"]
    world.execute(
        f"ALTER DATABASE {database} SET commit_delay = 100000",
        f"ALTER DATABASE {database} SET commit_siblings = 0",
    )
    ended = threading.Event()
    sent_records: list[Sent] = []

    def send_steadily() -> None:
        producer = EventProducer(world.topic.bootstrap)
        while not ended.wait(_STEADY_PACE_S):
            for one in numbered(world, len(sent_records), 10):
                assert one.value is not None
                key = str(len(sent_records)).encode()
                producer.send(world.topic.name, key=key, payload=one.value)
                sent_records.append(one)

    sending = threading.Thread(target=send_steadily)
    with world.driver(environment=BY_DRIVER) as driver:
        driver.wait_for("driver started")
        sending.start()
        try:
            looks = list(itertools.islice(each_look(world, sent_records), _LOOKS))
        finally:
            ended.set()
            sending.join()
    assert_named(looks, Cause.SLOW_DISK)
