"""A pipeline is scaled while it runs, and counts exactly all the time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.keyed_pipeline import write_python_pipeline
from integration_tests.harness.readings import Sent, sent
from integration_tests.harness.standalone_cluster import (
    StandaloneCluster,
    standalone_cluster,
)
from integration_tests.harness.transforming_pipeline import (
    write_transforming_pipeline,
)
from integration_tests.harness.watched_driver import WatchedDriver
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import RecordedDecision, read_scaling
from tallyweir.sinks.scaling.bounds import Bounds, Range
from tallyweir.sinks.scaling.decision import (
    BUSY_MIN,
    BUSY_TARGET,
    CATCH_UP_S,
    IDLE_BELOW,
    LOWER_PAUSE_S,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Waits for an event longer than all else takes, so that two executors do twice as much
#: on a machine that has no more cores for them.
_SLOW = """
    import time

    def slowly(amount):
        time.sleep(0.002)
        return amount

    return events.withColumn("twice", F.udf(slowly, "bigint")("amount"))
"""

#: The same for a key's events, one key after the other.
_SLOW_KEYS = """
import time
from datetime import timedelta
from tallyweir import Append, Pipeline, Source, ValueState, stateful


@stateful(
    table="totals",
    key=["sensor"],
    columns={{"events": "bigint"}},
    state={{"events": ValueState(0)}},
)
def totals(key, events, state, timers, watermark):
    time.sleep(0.003 * events.num_rows)
    state["events"].value += events.num_rows
    yield {{"events": state["events"].value}}


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    outputs=(Append(table="readings"), totals),
)
"""
_HOT = "hot"

_PARTITIONS = 4
_BATCH = 4_000
#: How long an executor takes to work at most, from when it was decided on.
_START_S = 20
_DEADLINE_S = 400.0
_POLL_S = 0.2

_ON_A_CLUSTER = {
    # Every batch is for the executors, and one of them does little at a time.
    "TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0",
    "SPARK_SUBMIT_OPTS": "-Dspark.executor.cores=1 -Dspark.executor.memory=512m "
    "-Dspark.driver.host=127.0.0.1",
}


class _World(DriverWorld):
    """A pipeline that is steered on a cluster, and all that was sent to it."""

    def __init__(self, directory: Path, kafka_bootstrap: str, home_dsn: str) -> None:
        super().__init__(directory, kafka_bootstrap, home_dsn, partitions=_PARTITIONS)
        self.sent: dict[tuple[int, int], Sent] = {}

    def register(self, bounds: Bounds) -> None:
        """Run once over some events, for there to be something to bound."""
        self.send(10)
        self.run_to_the_end()
        _set(self, bounds)

    @contextmanager
    def on(self, cluster: StandaloneCluster) -> Iterator[WatchedDriver]:
        """Run a driver, which has let go of what the master gave it for a start."""
        environment = {**_ON_A_CLUSTER, "TALLYWEIR_SPARK_MASTER": cluster.address}
        with self.driver(environment=environment, batch=_BATCH) as driver:
            driver.wait_for("driver started")
            cluster.await_executors(1)
            yield driver

    def send(self, count: int) -> None:
        """Send so many more events, of which nineteen in twenty are of one sensor."""
        first = len(self.sent)
        self.sent |= self.topic.send(
            [
                sent(
                    self.contract,
                    event_id=f"n{number}",
                    sensor=_HOT if number % 20 else f"s{number % 400}",
                    amount=number % 100,
                    partition=number % _PARTITIONS,
                )
                for number in range(first, first + count)
            ]
        )

    def send_steadily(self, rate: int, *, until: Callable[[], bool]) -> None:
        """Send so many events a second until something is so."""
        began, first = time.monotonic(), len(self.sent)
        while not until():
            passed = time.monotonic() - began
            assert passed < _DEADLINE_S, self.decisions()
            self.send(first + int(rate * passed) - len(self.sent))
            time.sleep(_POLL_S)

    def await_all(self) -> None:
        """Wait until all that was sent is published."""
        self.await_value(
            "SELECT sum(read) FROM tallyweir.batch_partition",
            lambda read: read == len(self.sent),
            timeout_s=_DEADLINE_S,
        )

    def decisions(self) -> list[RecordedDecision]:
        """Return what was decided, in order."""
        with psycopg.connect(self.home_dsn) as home:
            found = read_scaling(home, "readings", limit=1_000)
        return list(reversed(found.decisions))

    def rate(self, *, before: datetime | None = None, after: datetime | None) -> float:
        """Return the events/s of the typical full batch, by when it was under way."""
        return float(
            self.value(
                "WITH counted AS (SELECT sequence, sum(read) AS read "
                "FROM tallyweir.batch_partition GROUP BY sequence), "
                "timed AS (SELECT read, published_at AS ended, "
                "lag(published_at) OVER (ORDER BY sequence) AS began "
                "FROM tallyweir.batch JOIN counted USING (sequence)) "
                "SELECT percentile_cont(0.5) WITHIN GROUP "
                "(ORDER BY read / extract(epoch FROM ended - began)) FROM timed "
                "WHERE read >= 0.9 * %s AND ended <= coalesce(%s, ended) "
                "AND began >= coalesce(%s, began) + make_interval(secs => %s)",
                _BATCH,
                before,
                after,
                0 if after is None else _START_S,
            )
        )


def _changes(
    decisions: Sequence[RecordedDecision],
) -> list[tuple[RecordedDecision, tuple[int | None, int | None, str]]]:
    return [
        (one, (one.executors_before, one.executors, one.because))
        for one in decisions
        if one.executors != one.executors_before
    ]


def _set(world: DriverWorld, bounds: Bounds) -> None:
    with psycopg.connect(world.home_dsn) as home:
        steering.set_bounds(home, "readings", bounds)


def test_a_batch_size_out_of_its_new_bounds_gives_way_to_a_new_query(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """The batch at hand is published; the next claim reads on behind it."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    everything = world.topic.send(numbered(world, 0, 200))
    with world.driver(batch=100) as driver:
        world.await_read(200)
        _set(world, Bounds(batch_offsets=Range(least=10, most=40)))
        driver.wait_for("scaled")
        driver.wait_for("driver started")
        everything |= world.topic.send(numbered(world, 200, 300))
        world.await_read(500)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
        assert "starting over" not in driver.text
    assert world.value("SELECT max(epoch) FROM tallyweir.epoch_claim") == 2
    largest = world.value(
        "SELECT max(read) FROM ("
        "SELECT sum(read) AS read FROM tallyweir.batch_partition "
        "JOIN tallyweir.batch USING (pipeline, sequence) WHERE epoch = 2 "
        "GROUP BY sequence) AS batches"
    )
    # Spark rounds the share of each partition.
    assert largest <= 40 + 1
    world.assert_fates(everything)
    with world.driver(batch=100) as driver:
        driver.wait_for("driver started")
        world.topic.send(numbered(world, 500, 100))
        world.await_read(600)
    sizes = "SELECT count(*) FROM tallyweir.batch WHERE epoch = 3"
    assert world.value(sizes) >= 2, "the next driver has forgotten the size"


@pytest.mark.long
def test_executors_of_a_cluster_follow_new_bounds_while_batches_pass(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Up and down again, with each decision written down and every event counted."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    # The first start registers the pipeline, for there to be something to bound.
    everything = world.topic.send(numbered(world, 0, 100))
    world.run_to_the_end()
    _set(world, Bounds(executors=Range(least=1, most=1)))
    with standalone_cluster(
        tmp_path / "cluster", home_dsn=empty_dsn, workers=2
    ) as cluster:
        environment = {**_ON_A_CLUSTER, "TALLYWEIR_SPARK_MASTER": cluster.address}
        with world.driver(environment=environment) as driver:
            everything |= world.topic.send(numbered(world, 100, 100))
            world.await_read(200)
            cluster.await_executors(1)
            _set(world, Bounds(executors=Range(least=2, most=2)))
            everything |= world.topic.send(numbered(world, 200, 200))
            cluster.await_executors(2)
            _set(world, Bounds(executors=Range(least=1, most=1)))
            everything |= world.topic.send(numbered(world, 400, 200))
            cluster.await_executors(1)
            world.await_read(600)
            driver.send(signal.SIGTERM)
            assert driver.wait() == 0, driver.text
    changes = world.fetch(
        "SELECT executors_before, executors FROM tallyweir.scaling_decision "
        "WHERE executors <> executors_before ORDER BY decision"
    )
    assert changes == [(1, 2), (2, 1)]
    world.assert_fates(everything)


@pytest.mark.long
def test_a_backlog_raises_executors_and_quiet_lets_them_go(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Nobody does anything but send: up while it lasts, down after the pause.

    More arrives than one executor does, so nothing but another one helps.
    """
    world = _World(tmp_path, kafka_bootstrap, empty_dsn)
    world.pipeline_file = tmp_path / "readings.py"
    write_transforming_pipeline(world, world.pipeline_file, _SLOW)
    world.register(Bounds(executors=Range(least=1, most=2)))
    with (
        standalone_cluster(
            tmp_path / "cluster", home_dsn=empty_dsn, workers=2
        ) as cluster,
        world.on(cluster) as driver,
    ):
        world.send(16_000)
        world.send_steadily(500, until=lambda: cluster.executors == 2)
        world.await_all()
        cluster.await_executors(1, timeout_s=_DEADLINE_S)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    (rise, risen), (fall, fallen) = _changes(world.decisions())
    assert risen == (1, 2, "backlog")
    assert _is_loaded(rise)
    assert fallen == (2, 1, "idle")
    assert (fall.executors_there, fall.executors_wanted) == (2, 0)
    assert (fall.backlog, fall.rate) == (0, 0)
    assert fall.busy is not None
    assert fall.busy < IDLE_BELOW
    assert (fall.decided_at - rise.decided_at).total_seconds() >= LOWER_PAUSE_S
    with_one = world.rate(before=rise.decided_at, after=None)
    with_two = world.rate(after=rise.decided_at)
    assert with_two > 1.25 * with_one, "it was not worth it"
    world.assert_fates(world.sent)


@pytest.mark.long
def test_a_backlog_of_one_key_raises_no_executors(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """One task does it, whether there is one executor or two."""
    world = _World(tmp_path, kafka_bootstrap, empty_dsn)
    write_python_pipeline(world, _SLOW_KEYS)
    world.register(Bounds(executors=Range(least=1, most=2)))
    with (
        standalone_cluster(
            tmp_path / "cluster", home_dsn=empty_dsn, workers=2
        ) as cluster,
        world.on(cluster) as driver,
    ):
        world.send(40_000)
        world.await_value(
            "SELECT because FROM tallyweir.scaling_decision "
            "ORDER BY decision DESC LIMIT 1",
            lambda because: because == "hot_key",
        )
        assert cluster.executors == 1
        # What an operator does who does not believe it.
        _set(world, Bounds(executors=Range(least=2, most=4)))
        cluster.await_executors(2)
        world.await_all()
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    decisions = world.decisions()
    ((_, followed),) = _changes(decisions)
    assert followed == (1, 2, "bounds")
    # One core of two has the key: whether that is below half is a matter of a hair.
    refused, *later = (o for o in decisions if o.because in ("hot_key", "not_busy"))
    assert (refused.because, refused.executors) == ("hot_key", 1)
    assert _is_loaded(refused)
    assert refused.hot_key_share is not None
    assert refused.hot_key_share > 1 / (2 * BUSY_TARGET)
    assert any(one.executors == 2 for one in later), decisions
    hot = sum(number % 20 != 0 for number in range(len(world.sent)))
    assert world.value("SELECT max(events) FROM totals WHERE sensor = %s", _HOT) == hot
    world.assert_fates(world.sent)


def _is_loaded(one: RecordedDecision) -> bool:
    """Tell whether a decision of one executor was made as the rules are written."""
    figures = one.backlog, one.expected_rate, one.rate, one.busy, one.executors_wanted
    backlog, expected_rate, rate, busy, wanted = map(_known, figures)
    assert one.executors_there == 1, one
    assert busy >= BUSY_MIN, one
    assert expected_rate + backlog / CATCH_UP_S > BUSY_TARGET * rate / busy, one
    return wanted >= 2


def _known(figure: float | None) -> float:
    assert figure is not None
    return figure
