"""A driver that ends in every way, politely or not: counts stay exact."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import uuid
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.readings import Sent, sent
from tallyweir.sinks.faultpoints import FaultPoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_SEED = 20_241
#: What may pass by itself.
_AGAIN = 75


def _with_repeats(world: DriverWorld, first: int, count: int) -> list[Sent]:
    """Good readings, then a tenth of them again in the other partition."""
    good = numbered(world, first, count)
    return [*good, *_repeats(world, range(first, first + count, 10))]


def _repeats(world: DriverWorld, numbers: range) -> list[Sent]:
    return [
        sent(
            world.contract,
            event_id=f"n{number}",
            amount=number % 100,
            partition=(number + 1) % 2,
            fate="duplicate",
        )
        for number in numbers
    ]


@pytest.mark.long
def test_sigterm_drains_and_the_next_driver_goes_on_behind_it(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """SIGTERM ends the batch at hand whole: exit code 0 and one line about it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(_with_repeats(world, 0, 3_000))
    with world.driver(batch=100) as driver:
        driver.wait_for("batch published")
        driver.wait_for("batch planned")
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert 1 == sum('"at rest"' in line for line in driver.lines), driver.text
    assert "Traceback" not in driver.text
    reached = world.value("SELECT sum(next_offset) FROM tallyweir.partition_progress")
    assert reached == world.value("SELECT sum(read) FROM tallyweir.batch_partition")
    assert 0 < reached < len(everything), "it must have been stopped in the middle"
    world.assert_verified()

    world.run_to_the_end()
    world.assert_fates(everything)


#: A batch that touches the home database only has no branches.
_POINTS_OF_ONE_DATABASE = [
    FaultPoint.PLANNED,
    FaultPoint.ROWS_STAGED,
    FaultPoint.VOTED,
    FaultPoint.DECISION_COMMITTED,
    FaultPoint.SEALED,
]


def test_a_driver_killed_at_every_point_of_the_protocol_is_as_if_it_never_was(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Each restart goes on from Postgres alone; nothing is lost or doubled."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(_with_repeats(world, 0, 1_500))
    published = 0
    for point in _POINTS_OF_ONE_DATABASE:
        with world.driver(batch=100, fault=f"after:{point.value}:2:SIGKILL") as driver:
            assert driver.wait() == -signal.SIGKILL, driver.text
        # The second batch is staged while the first one is published.
        is_decided = point in (FaultPoint.DECISION_COMMITTED, FaultPoint.SEALED)
        former, published = published, len(world.ledger())
        assert published - former in ({2} if is_decided else {0, 1}), point
        world.assert_verified()
    world.run_to_the_end()
    world.assert_fates(everything)


@pytest.mark.parametrize(
    "moment",
    ["batch planned", pytest.param("batch published", marks=pytest.mark.long)],
)
def test_a_driver_whose_jvm_is_killed_says_so_and_the_next_one_goes_on(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, moment: str
) -> None:
    """In mid-batch or idle, it ends with an error that a person understands."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(numbered(world, 0, 20))
    with world.driver() as driver:
        driver.wait_for(moment)
        driver.kill_the_jvm()
        assert driver.wait() == _AGAIN, driver.text
    # PySpark's accumulator thread writes a traceback of its own, before or after.
    assert "SPARK_ENDED" in driver.lines, driver.text
    assert "py4j" not in driver.text, driver.text
    world.run_to_the_end()
    world.assert_fates(everything)


@pytest.mark.long
def test_kill_9_at_random_moments_loses_and_doubles_nothing(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Moments between the points of the protocol do no harm either.

    Not reproducible to the instruction; the seed only repeats the delays.
    """
    chance = random.Random(_SEED)
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(_with_repeats(world, 0, 3_000))
    for _ in range(3):
        with world.driver(batch=200) as driver:
            for _ in range(chance.randint(1, 3)):
                driver.wait_for("batch planned")
            threading.Event().wait(chance.uniform(0, 0.3))
            driver.send(signal.SIGKILL)
            driver.wait()
    world.run_to_the_end()
    world.assert_fates(everything)


@pytest.mark.long
def test_local_state_can_be_deleted_while_the_driver_runs(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Checkpoints and caches are made again from Postgres."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    everything = world.topic.send(_with_repeats(world, 0, 1_500))
    with world.driver(batch=100) as driver:
        driver.wait_for("batch published")
        _delete(world.state / "checkpoints")
        _await_read(world, len(everything))
        driver.wait_for("batch published")
        _delete(world.state / "checkpoints")
        _delete(world.state / "seen_ids")
        everything |= world.topic.send(_repeats(world, range(50)))
        _await_read(world, len(everything))
        # Files of the copy of the seen IDs have no names, so nobody can damage them.
        assert not [p for p in (world.state / "seen_ids").rglob("*") if p.is_file()]
        everything |= world.topic.send(_repeats(world, range(100, 150)))
        _await_read(world, len(everything))
        # One after the other: of two partitions, what was sent last may be read first.
        everything |= world.topic.send(numbered(world, 5_000, 50))
        _await_read(world, len(everything))
        everything |= world.topic.send(_repeats(world, range(5_000, 5_050, 10)))
        _await_read(world, len(everything))
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    world.assert_fates(everything)


def _delete(directory: Path) -> None:
    """Delete a directory that a driver writes to: first out of its way, at once.

    Deleting file by file fails when one is written, or renamed, meanwhile.
    """
    out_of_the_way = directory.rename(directory.with_name(f"deleted-{uuid.uuid4()}"))
    shutil.rmtree(out_of_the_way)


def _await_read(world: DriverWorld, records: int) -> None:
    world.await_value(
        "SELECT sum(read) FROM tallyweir.batch_partition", lambda n: n == records
    )
