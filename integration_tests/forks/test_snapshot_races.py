"""Snapshots beside acts that must know of them: one comes after the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.errors import LockNotAvailable
from psycopg.rows import TupleRow

from integration_tests.harness.forked_ledger import add_windows, publish_as
from integration_tests.harness.interrupted_session import interrupted
from integration_tests.harness.postgres_cluster import await_row
from integration_tests.harness.postgres_driver import query
from integration_tests.harness.steered_pipeline import LAYOUTS
from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    failed,
    fake_fingerprint,
)
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.steering import ActRequest, ChangeRequest, ErasureRequest
from tallyweir.sinks.postgres.versions.version_claim import describe_layout
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

Connection = psycopg.Connection[TupleRow]

_NEW = "departures-2"
_PUBLIC = "-c search_path=public"
_REASON = "a test"
_BROKER = {
    TopicPartition(TOPIC, partition): BrokerPosition(
        topic_id="id", log_start_offset=0, log_end_offset=1000
    )
    for partition in (0, 3)
}
#: While it is taken: the snapshot has its moment, and nobody sees it.
_AMID = "CREATE TABLE"
_WAITS = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock' AND wait_event = 'advisory'"
)


@pytest.fixture
def scenario(connection: Connection, scenario: LedgerScenario) -> LedgerScenario:
    """The ledger's, with its window table."""
    add_windows(connection)
    return scenario


def _connect(dsn: str) -> Connection:
    return psycopg.connect(dsn, options=_PUBLIC)


def _request(kind: str, of: str, timeout_ms: int) -> ActRequest:
    return ActRequest(
        pipeline=of, kind=kind, reason=_REASON, lock_timeout_ms=timeout_ms
    )


def _take(home: Connection, of: str = PIPELINE, name: str = "amid") -> None:
    home.rollback()
    steering.take_snapshot(home, of, name, reason=_REASON)


def _fork(home: Connection) -> None:
    home.rollback()
    steering.fork(home, _request("fork", PIPELINE, 1000), _NEW)


def _restore(home: Connection, timeout_ms: int, name: str = "first") -> Any:  # noqa: ANN401
    return steering.restore(
        home, PIPELINE, name, _BROKER, reason=_REASON, lock_timeout_ms=timeout_ms
    )


def _erase(home: Connection, timeout_ms: int) -> object:
    request = ErasureRequest(act=_request("erase", PIPELINE, timeout_ms), ids=("0-2",))
    return steering.erase(home, request, fake_fingerprint)


def _switch(home: Connection, timeout_ms: int) -> object:
    return steering.switch(home, _request("switch", PIPELINE, timeout_ms), _NEW)


def _discard(home: Connection, timeout_ms: int) -> object:
    return steering.discard(home, _request("discard", _NEW, timeout_ms))


def _update(home: Connection, timeout_ms: int) -> object:
    change = ChangeRequest(
        pipeline=PIPELINE, reason=_REASON, lock_timeout_ms=timeout_ms
    )
    return steering.update(home, change, describe_layout(LAYOUTS[1]))


def _roll_back(home: Connection, timeout_ms: int) -> object:
    change = ChangeRequest(
        pipeline=PIPELINE, reason=_REASON, lock_timeout_ms=timeout_ms
    )
    return steering.rollback(home, change, 1)


@pytest.mark.parametrize(
    ("act", "of"),
    [
        (_restore, PIPELINE),
        (_erase, PIPELINE),
        (_switch, PIPELINE),
        (_switch, _NEW),
        (_discard, _NEW),
        (_update, PIPELINE),
        (_roll_back, PIPELINE),
    ],
)
def test_an_act_beside_a_snapshot_gives_up_in_time(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    act: Callable[[Connection, int], object],
    of: str,
) -> None:
    """It cannot see the snapshot yet, and would leave it as it is."""
    assert scenario.sequence == 3
    if act is _restore:
        _take(connection, PIPELINE, "first")
        publish_as(connection, PIPELINE)
    _fork(connection)
    told: list[RetryableError] = []

    def beside() -> None:
        with _connect(home_dsn) as home:
            try:
                act(home, 200)
            except RetryableError as error:
                told.append(error)

    with interrupted(home_dsn, _AMID, beside, options=_PUBLIC) as taking:
        _take(taking, of)
    assert [error.code for error in told] == ["SNAPSHOT_AT_WORK"]
    assert "amid" in [s.name for s in steering.list_snapshots(connection, of)]


def test_an_erasure_finds_the_snapshot_that_it_has_waited_for(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """What it keeps of a person would stay otherwise."""
    assert scenario.sequence == 3
    with ThreadPoolExecutor(1) as pool:
        erasing: list[Future[object]] = []

        def beside() -> None:
            erasing.append(pool.submit(_in_session, home_dsn, _erase))
            await_row(home_dsn, _WAITS)

        with interrupted(home_dsn, _AMID, beside, options=_PUBLIC) as taking:
            _take(taking)
        with pytest.raises(ConfigurationError, match=r"ERASE_SNAPSHOT_KEPT.*amid"):
            erasing[0].result(60)
    connection.rollback()


def _in_session(dsn: str, act: Callable[[Connection, int], object]) -> object:
    with _connect(dsn) as home:
        return act(home, 60_000)


@pytest.mark.parametrize(("act", "of"), [(_restore, PIPELINE), (_switch, _NEW)])
def test_nobody_waits_for_an_act_that_waits_for_a_snapshot(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    act: Callable[[Connection, int], Any],
    of: str,
) -> None:
    """Drivers claim and publish all the while; the act knows of all of it then."""
    assert scenario.sequence == 3
    _take(connection, PIPELINE, "first")
    _fork(connection)
    publish_as(connection, PIPELINE)
    with ThreadPoolExecutor(1) as pool:
        acting: list[Future[Any]] = []

        def beside() -> None:
            acting.append(pool.submit(_in_session, home_dsn, act))
            await_row(home_dsn, _WAITS)
            with psycopg.connect(
                home_dsn, options=f"{_PUBLIC} -c lock_timeout=1s"
            ) as publisher:
                publish_as(publisher, PIPELINE)
                for _ in range(2):
                    publish_as(publisher, _NEW)

        with interrupted(home_dsn, _AMID, beside, options=_PUBLIC) as taking:
            _take(taking, of)
        done = acting[0].result(60)
    connection.rollback()
    if act is _restore:
        assert (done.dropped, done.through_sequence) == (("amid",), 5)
        kept = [s.name for s in steering.list_snapshots(connection, PIPELINE)]
        assert kept == ["first"]
    else:
        assert done.tables
    for pipeline in (PIPELINE, _NEW):
        assert failed(verify(connection, pipeline)) == {}


def test_a_snapshot_beside_a_restore_is_of_what_that_leaves(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Of the moment before it, the positions would be behind rows that are gone."""
    assert scenario.sequence == 3
    _take(connection, PIPELINE, "first")
    publish_as(connection, PIPELINE)
    with ThreadPoolExecutor(1) as pool:
        snapshots: list[Future[object]] = []

        def take(home: Connection, _timeout_ms: int) -> None:
            _take(home, PIPELINE, "late")

        def beside() -> None:
            snapshots.append(pool.submit(_in_session, home_dsn, take))
            await_row(home_dsn, _WAITS)

        noted = "INSERT INTO tallyweir.restore"
        with interrupted(home_dsn, noted, beside, options=_PUBLIC) as restoring:
            _restore(restoring, 60_000)
        snapshots[0].result(60)
    publish_as(connection, PIPELINE)
    assert _restore(connection, 60_000, "late").batches == 1
    assert failed(verify(connection, PIPELINE)) == {}


def test_who_drops_a_bucket_beside_an_act_gives_up_for_this_time(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Both begin with one lock, so they never wait for each other in a circle."""
    assert scenario.sequence == 3
    _take(connection, PIPELINE, "first")
    dropped = "SELECT tallyweir.drop_bucket(pipeline_number, 0) FROM tallyweir.pipeline"

    def beside() -> None:
        with (
            psycopg.connect(home_dsn, options="-c lock_timeout=100ms") as driver,
            pytest.raises(LockNotAvailable),
        ):
            driver.execute(dropped)

    noted = "INSERT INTO tallyweir.restore"
    with interrupted(home_dsn, noted, beside, options=_PUBLIC) as restoring:
        _restore(restoring, 60_000)
    query(home_dsn, dropped)


def _move(connection: Connection, _pipeline: str) -> None:
    steering.reset_offsets(
        connection, PIPELINE, {TopicPartition(TOPIC, 0): 2}, _BROKER, reason=_REASON
    )


@pytest.mark.parametrize("change", [publish_as, _move])
def test_a_snapshot_of_what_was_taken_back_is_not_restored(
    connection: Connection,
    scenario: LedgerScenario,
    change: Callable[[Connection, str], None],
) -> None:
    """However it came to be there still: its batch, or its positions, are gone."""
    assert scenario.sequence == 3
    _take(connection, PIPELINE, "first")
    change(connection, PIPELINE)
    _take(connection, PIPELINE, "gone")
    connection.execute(
        "CREATE TABLE kept AS SELECT * FROM tallyweir.snapshot WHERE name = 'gone'"
    )
    connection.commit()
    assert _restore(connection, 60_000, "gone").dropped == ()
    assert _restore(connection, 60_000).dropped == ("gone",)
    connection.execute(
        "INSERT INTO tallyweir.snapshot OVERRIDING SYSTEM VALUE TABLE kept"
    )
    connection.commit()
    with pytest.raises(ConfigurationError, match=r"RESTORE_PAST_RESTORE.*gone.*first"):
        _restore(connection, 60_000, "gone")
    assert _restore(connection, 60_000).dropped == ("gone",)
