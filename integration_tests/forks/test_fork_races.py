"""A fork beside acts that rename or drop what it is about to copy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.discarded_fork import add_own_tables
from integration_tests.harness.forked_ledger import publish_as
from integration_tests.harness.interrupted_session import interrupted
from integration_tests.harness.postgres_cluster import await_row
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario, failed
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.steering import ActRequest, Fork
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

Connection = psycopg.Connection[TupleRow]

_NEW = "departures-2"
_NEWEST = "departures-3"
_SHADOW = "departures__departures_3"
_PUBLIC = "-c search_path=public"
_LOCK_TIMEOUT_MS = 2_000
_LOCKS = "LOCK TABLE"
_HAS_ITS_MOMENT = "INSERT INTO "
_WAITS = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock' AND query LIKE '%LOCK TABLE%'"
)


@pytest.fixture
def forked(connection: Connection, scenario: LedgerScenario) -> Connection:
    """The ledger and its fork, which has read one event more."""
    add_own_tables(connection)
    assert scenario.sequence == 3
    _fork(connection, PIPELINE, _NEW)
    publish_as(connection, _NEW)
    return connection


def _fork(home: Connection, of: str, new: str) -> Fork:
    home.rollback()
    return steering.fork(home, _request("fork", of), new)


def _request(kind: str, of: str) -> ActRequest:
    return ActRequest(
        pipeline=of, kind=kind, reason="v3", lock_timeout_ms=_LOCK_TIMEOUT_MS
    )


def _switch(home: Connection) -> None:
    steering.switch(home, _request("switch", PIPELINE), _NEW)


def _discard(home: Connection) -> None:
    steering.discard(home, _request("discard", _NEW))


@pytest.mark.parametrize(
    ("act", "of", "rows"), [(_switch, PIPELINE, 15), (_discard, _NEW, 16)]
)
def test_a_fork_copies_the_tables_that_its_ledger_is_of(
    home_dsn: str,
    forked: Connection,
    act: Callable[[Connection], None],
    of: str,
    rows: int,
) -> None:
    """From its moment on nobody renames or drops them; who tries to is told soon."""

    def beside() -> None:
        with (
            psycopg.connect(home_dsn, options=_PUBLIC) as home,
            pytest.raises(RetryableError, match="lock timeout"),
        ):
            act(home)

    with interrupted(home_dsn, _HAS_ITS_MOMENT, beside, options=_PUBLIC) as forking:
        made = _fork(forking, of, _NEWEST)
    assert made.rows[_SHADOW] == rows
    forked.rollback()
    for pipeline in (PIPELINE, _NEW, _NEWEST):
        assert failed(verify(forked, pipeline)) == {}


@pytest.mark.parametrize(("act", "of"), [(_switch, PIPELINE), (_discard, _NEW)])
def test_a_fork_of_tables_that_have_just_changed_is_not_made(
    home_dsn: str,
    forked: Connection,
    act: Callable[[Connection], None],
    of: str,
) -> None:
    """They are found before its moment, and may be others by then, or gone."""

    def beside() -> None:
        with psycopg.connect(home_dsn, options=_PUBLIC) as home:
            act(home)

    with (
        interrupted(home_dsn, _LOCKS, beside, options=_PUBLIC) as forking,
        pytest.raises(RetryableError, match="FORK_TABLES_CHANGED"),
    ):
        _fork(forking, of, _NEWEST)
    with pytest.raises(ConfigurationError, match="PIPELINE_UNKNOWN"):
        verify(forked, _NEWEST)
    forked.rollback()
    if act is _discard:
        with pytest.raises(ConfigurationError, match="PIPELINE_DISCARDED"):
            _fork(forked, of, _NEWEST)
        return
    assert _fork(forked, of, _NEWEST).rows[_SHADOW] == 15
    assert failed(verify(forked, _NEWEST)) == {}


def test_a_fork_that_waits_for_a_switch_does_not_take_the_others_tables(
    home_dsn: str, forked: Connection
) -> None:
    """What it locks has its name by then, and its moment comes after the lock."""
    with ThreadPoolExecutor(1) as pool:
        forks: list[Future[Fork]] = []

        def fork() -> Fork:
            with psycopg.connect(home_dsn, options=_PUBLIC) as home:
                return _fork(home, PIPELINE, _NEWEST)

        def beside() -> None:
            forks.append(pool.submit(fork))
            await_row(home_dsn, _WAITS)

        noted = "INSERT INTO tallyweir.act"
        with interrupted(home_dsn, noted, beside, options=_PUBLIC) as switching:
            _switch(switching)
        with pytest.raises(RetryableError, match="FORK_TABLES_CHANGED"):
            forks[0].result(60)
    assert _fork(forked, PIPELINE, _NEWEST).rows[_SHADOW] == 15
