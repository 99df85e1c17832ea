"""A standby takes over: what it lacks is made again, what it has is not."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from integration_tests.harness.drilled_topic import (
    DrilledDriver,
    DrillEvent,
    drilled_topic,
    final_tables,
    run_undisturbed,
)
from integration_tests.harness.postgres_cluster import (
    await_caught_up,
    be_synchronous,
    cut_off,
    either_of,
    kill,
    promote,
    rewind,
    stand_by,
    timeline,
)
from integration_tests.harness.postgres_driver import query
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import BatchTally

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_RECORDS = 900
_BATCH_NOW = "SELECT last_sequence FROM tallyweir.pipeline"
_UNREACHABLE = ("POSTGRES_UNAVAILABLE", "POSTGRES_UNREACHABLE")


class _Pair:
    """A primary with a migrated home database, and its standby."""

    def __init__(self, directory: Path) -> None:
        seed = random.SystemRandom().randrange(2**32)
        print(f"seed={seed}")  # noqa: T201 - a failure must tell it
        self.chance = random.Random(seed)
        self.topic: list[DrillEvent] = drilled_topic(self.chance, _RECORDS)
        self.primary = EmbeddedPostgres(directory / "first")
        self.standby = EmbeddedPostgres(directory / "second")
        self._undisturbed: dict[str, Any] = {}

    def start(self) -> None:
        self.primary.start()
        self._undisturbed = run_undisturbed(self.primary.dsn, self.topic, self.chance)
        migrate(self.primary.dsn)
        stand_by(self.primary, self.standby.directory)

    def stop(self) -> None:
        self.standby.stop()
        self.primary.stop()

    def driver(self, *servers: EmbeddedPostgres) -> DrilledDriver:
        """Start a driver on whichever of the servers takes writes; any, by default."""
        dsn = either_of(*(servers or (self.primary, self.standby)))
        return DrilledDriver(dsn, self.topic, self.chance)

    def assert_heals(self, server: EmbeddedPostgres) -> None:
        """Start a driver as a supervisor would, and compare what it leaves."""
        driver = self.driver()
        driver.run_to_the_end()
        driver.close()
        self.assert_same(server)

    def assert_same(self, server: EmbeddedPostgres) -> None:
        """Compare a server's tables with those of a run that nothing disturbed."""
        assert self._undisturbed == final_tables(server.dsn)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[_Pair]:
    """Servers of the test's own."""
    pair = _Pair(tmp_path)
    pair.start()
    yield pair
    pair.stop()


def test_an_asynchronous_standby_that_lacks_batches_heals(pair: _Pair) -> None:
    """What the standby never received is read again; the running driver stops."""
    driver = pair.driver()
    driver.run_batches(5)
    await_caught_up(pair.primary)
    cut_off(pair.standby)
    driver.run_batches(3)
    batch = driver.stage_batch()
    assert [(8,)] == query(pair.primary.dsn, _BATCH_NOW)
    kill(pair.primary)
    promote(pair.standby)
    assert [(5,)] == query(pair.standby.dsn, _BATCH_NOW)

    assert _refusal(driver, batch) in _UNREACHABLE
    assert "OFFSETS_DISAGREE" == _refusal(driver, batch)
    pair.assert_heals(pair.standby)
    assert "FENCED" == _refusal(driver, batch)


def test_a_synchronous_standby_has_every_batch_that_was_acknowledged(
    pair: _Pair,
) -> None:
    """The primary dies while batches are published one after the other."""
    be_synchronous(pair.primary)
    driver = pair.driver()
    published: queue.Queue[int] = queue.Queue()

    def publish_until_the_server_dies() -> None:
        try:
            while True:
                driver.run_batches(1)
                published.put(driver.position)
        except (TallyweirError, psycopg.OperationalError):
            # The drill reads the catalog by a plain connection when it stages, so
            # the server may die there as well as under a publish.
            return

    publishing = threading.Thread(target=publish_until_the_server_dies)
    publishing.start()
    acknowledged = max(published.get(timeout=60) for _ in range(5))
    kill(pair.primary)
    publishing.join()
    while not published.empty():
        acknowledged = published.get()
    promote(pair.standby)

    reached = query(
        pair.standby.dsn, "SELECT next_offset FROM tallyweir.partition_progress"
    )
    assert reached[0][0] >= acknowledged
    pair.assert_heals(pair.standby)


def test_a_claim_that_the_standby_lacks_is_lost(pair: _Pair) -> None:
    """Another driver may be given the same epoch; the two are told apart."""
    pair.driver().close()
    await_caught_up(pair.primary)
    cut_off(pair.standby)
    driver = pair.driver()
    driver.run_batches(2)
    batch = driver.stage_batch()
    kill(pair.primary)
    promote(pair.standby)

    assert _refusal(driver, batch) in _UNREACHABLE
    assert "CLAIM_LOST" == _refusal(driver, batch)
    pair.assert_heals(pair.standby)
    assert "CLAIM_LOST" == _refusal(driver, batch)


def test_drivers_of_a_split_brain_never_meet_unnoticed(pair: _Pair) -> None:
    """Each history goes on by itself; no driver can move from one into the other.

    This is all that the home database can do. That only one of two primaries takes
    writes is for the operator's high availability to make sure.
    """
    former = pair.driver()
    former.run_batches(2)
    await_caught_up(pair.primary)
    cut_off(pair.standby)
    promote(pair.standby)
    # Its connection to the old primary still stands.
    former.run_batches(1)
    newer = pair.driver(pair.standby, pair.primary)
    newer.run_batches(2)
    assert [(3,)] == query(pair.primary.dsn, _BATCH_NOW)
    assert [(4,)] == query(pair.standby.dsn, _BATCH_NOW)
    assert (1, 2) == (timeline(pair.primary.dsn), timeline(pair.standby.dsn))
    batch_of_former, batch_of_newer = former.stage_batch(), newer.stage_batch()

    pair.standby.stop()
    assert _refusal(newer, batch_of_newer) in _UNREACHABLE
    assert "CLAIM_LOST" == _refusal(newer, batch_of_newer)
    pair.standby.start()
    pair.primary.stop()
    assert _refusal(former, batch_of_former) in _UNREACHABLE
    assert "FENCED" == _refusal(former, batch_of_former)

    # The old primary is made a standby of the new one: its own batches are gone.
    rewind(pair.primary, pair.standby)
    pair.primary.start()
    pair.assert_heals(pair.standby)
    await_caught_up(pair.standby)
    pair.assert_same(pair.primary)


def _refusal(driver: DrilledDriver, batch: tuple[BatchPlan, BatchTally]) -> str:
    """Let a driver publish what it has staged; return why it may not."""
    with pytest.raises(TallyweirError) as raised:
        driver.publish(*batch)
    return raised.value.code
