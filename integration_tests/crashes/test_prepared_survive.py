"""A participant crashes, restarts or fails over while a branch is prepared in it.

The scenarios are those that Postgres itself is tested by (009_twophase), run through
the product: a driver prepares the branch and dies, the server has its accident, and
the next driver finishes the branch as its batch was decided.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from integration_tests.harness.postgres_cluster import (
    await_caught_up,
    cut_off,
    either_of,
    kill,
    promote,
    stand_by,
)
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    Row,
    execute,
    layout_of,
    query,
)
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.sinks.faultpoints import FaultPoint, arm, disarm_all
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import FatalError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_LAYOUT = layout_of(
    AppendTable(
        table="numbers",
        staging_table="output_0",
        event_columns=(Column(name="number", postgres_type="bigint"),),
        branches=("billing.0",),
    )
)
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
#: Locks of prepared transactions are held by no process.
_LOCKED = "SELECT FROM pg_locks WHERE pid IS NULL AND relation = 'numbers'::regclass"
_CLAIMS = "tallyweir_state.result_table"

#: No two tests write the same number, because they share a participant.
_numbers = itertools.count()


class _KilledError(BaseException):
    """The driver's process died."""


class _Servers:
    """A participant's primary and its standby, which changes at a failover."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made = itertools.count()
        self.primary = EmbeddedPostgres(directory / "first")
        self.primary.start()
        self.standby = self._new_standby()

    @property
    def dsn(self) -> str:
        return either_of(self.primary, self.standby)

    def fail_over(self) -> None:
        """Promote the standby; the primary is dead."""
        promote(self.standby)
        self.primary, self.standby = self.standby, self.primary

    def renew_standby(self) -> None:
        """Make another standby when the last one was promoted."""
        if not self.standby.is_running():
            self.standby = self._new_standby()

    def stop(self) -> None:
        self.standby.stop()
        self.primary.stop()

    def _new_standby(self) -> EmbeddedPostgres:
        return stand_by(self.primary, self._directory / f"standby{next(self._made)}")


@pytest.fixture(scope="module")
def all_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Servers]:
    """Servers for all tests of this module."""
    servers = _Servers(tmp_path_factory.mktemp("participant"))
    yield servers
    servers.stop()


@pytest.fixture
def servers(all_servers: _Servers) -> Iterator[_Servers]:
    """The servers, both of them running; their table is nobody's."""
    all_servers.renew_standby()
    yield all_servers
    disarm_all()
    (claimed,) = query(all_servers.primary.dsn, f"SELECT to_regclass('{_CLAIMS}')")
    if claimed != (None,):
        # Each test has a home of its own, and the one before has claimed the table.
        execute(all_servers.primary.dsn, f"DELETE FROM {_CLAIMS}")


def _restart(servers: _Servers) -> None:
    servers.primary.stop()
    servers.primary.start()


def _crash(servers: _Servers) -> None:
    servers.primary.daemon.stop(signal.SIGQUIT, deadline_s=60)
    servers.primary.start()


def _crash_after_a_checkpoint(servers: _Servers) -> None:
    execute(servers.primary.dsn, "CHECKPOINT")
    _crash(servers)


def _crash_in_recovery(servers: _Servers) -> None:
    _crash(servers)
    kill(servers.primary)
    servers.primary.start()


def _promote(servers: _Servers) -> None:
    await_caught_up(servers.primary)
    kill(servers.primary)
    servers.fail_over()


def _promote_after_a_checkpoint(servers: _Servers) -> None:
    execute(servers.primary.dsn, "CHECKPOINT")
    await_caught_up(servers.primary)
    execute(servers.standby.dsn, "CHECKPOINT")
    kill(servers.primary)
    servers.fail_over()


def _promote_a_standby_that_restarted_alone(servers: _Servers) -> None:
    await_caught_up(servers.primary)
    kill(servers.primary)
    servers.standby.stop()
    servers.standby.start()
    servers.fail_over()


def _promote_a_standby_that_crashed_alone(servers: _Servers) -> None:
    await_caught_up(servers.primary)
    kill(servers.primary)
    kill(servers.standby)
    servers.standby.start()
    servers.fail_over()


@pytest.mark.parametrize(
    "happens",
    [
        _crash,
        _promote,
        *(
            pytest.param(other, marks=pytest.mark.long)
            for other in (
                _restart,
                _crash_after_a_checkpoint,
                _crash_in_recovery,
                _promote_after_a_checkpoint,
                _promote_a_standby_that_restarted_alone,
                _promote_a_standby_that_crashed_alone,
            )
        ),
    ],
)
@pytest.mark.parametrize(
    "died_at",
    [
        pytest.param(FaultPoint.ALL_PREPARED, marks=pytest.mark.long),
        FaultPoint.DECISION_COMMITTED,
    ],
)
def test_a_prepared_branch_survives_and_ends_as_it_was_decided(
    servers: _Servers,
    home_dsn: str,
    happens: Callable[[_Servers], None],
    died_at: FaultPoint,
) -> None:
    """It and its locks are there afterwards, until the next driver finishes it."""
    number = _die_with_a_branch(servers, home_dsn, died_at)
    (branch,) = query(servers.primary.dsn, _PREPARED)

    happens(servers)
    assert [branch] == query(servers.primary.dsn, _PREPARED)
    assert query(servers.primary.dsn, _LOCKED), "its locks are gone"
    assert not _holds(servers, number)

    driver = _driver(servers, home_dsn)
    assert [] == query(servers.primary.dsn, _PREPARED)
    is_decided = died_at is FaultPoint.DECISION_COMMITTED
    assert is_decided is _holds(servers, number)
    after = _publish(driver)
    assert _holds(servers, after)


def test_a_standby_without_the_decided_branch_stops_the_pipeline(
    servers: _Servers, home_dsn: str
) -> None:
    """The branch is neither prepared nor committed there: its rows are missing."""
    await_caught_up(servers.primary)
    first = _driver(servers, home_dsn)
    _publish(first)
    _close(first)
    await_caught_up(servers.primary)
    cut_off(servers.standby)
    _die_with_a_branch(servers, home_dsn, FaultPoint.DECISION_COMMITTED)
    kill(servers.primary)
    servers.fail_over()

    with pytest.raises(FatalError) as raised:
        _driver(servers, home_dsn)
    assert "BRANCH_LOST" == raised.value.code


def test_a_standby_without_the_last_branches_stops_the_pipeline(
    servers: _Servers, home_dsn: str
) -> None:
    """They were committed on the primary; home has their batches, the standby not."""
    driver = _driver(servers, home_dsn)
    _publish(driver)
    await_caught_up(servers.primary)
    cut_off(servers.standby)
    lost = _publish(driver)
    _close(driver)
    kill(servers.primary)
    servers.fail_over()

    assert not _holds(servers, lost)
    with pytest.raises(FatalError) as raised:
        _driver(servers, home_dsn)
    assert "PARTICIPANT_BEHIND" == raised.value.code


def test_a_home_without_the_last_decisions_stops_the_pipeline(
    servers: _Servers, empty_dsn: str
) -> None:
    """Reading on from its offsets would write the participant's rows twice."""
    execute(servers.primary.dsn, "CREATE DATABASE home")
    migrate(make_conninfo(servers.primary.dsn, dbname="home"))
    home_dsn = make_conninfo(servers.dsn, dbname="home")
    databases = {"billing": empty_dsn}
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    _publish(driver)
    await_caught_up(servers.primary)
    cut_off(servers.standby)
    _publish(driver)
    _close(driver)
    kill(servers.primary)
    servers.fail_over()

    with pytest.raises(FatalError) as raised:
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    assert "PARTICIPANT_AHEAD" == raised.value.code
    assert [(2,)] == query(empty_dsn, "SELECT count(*) FROM numbers")


def _driver(servers: _Servers, home_dsn: str) -> PostgresDriver:
    return PostgresDriver(
        dsn=home_dsn, layout=_LAYOUT, databases={"billing": servers.dsn}
    )


def _publish(driver: PostgresDriver, number: int | None = None) -> int:
    """Publish a row of the participant; return its number."""
    number = next(_numbers) if number is None else number
    plan = driver.plan(1)
    staged: dict[str, list[Row]] = {
        "output_0@billing.0": driver.positioned(plan, [(number,)])
    }
    outcome = driver.publish(plan, driver.stage(plan, staged))
    assert PublishOutcome.COMMITTED is outcome
    return number


def _die_with_a_branch(servers: _Servers, home_dsn: str, died_at: FaultPoint) -> int:
    """Let a driver die there; return the number of the row that is in doubt."""

    def die() -> None:
        raise _KilledError

    driver = _driver(servers, home_dsn)
    number = next(_numbers)
    arm(died_at, die)
    with pytest.raises(_KilledError):
        _publish(driver, number)
    disarm_all()
    _close(driver)
    return number


def _close(driver: PostgresDriver) -> None:
    """Take a dead driver's connections away, as the kernel would."""
    driver.home.close()
    for participant in driver.participants.values():
        participant.close()


def _holds(servers: _Servers, number: int) -> bool:
    """Tell whether a reader of the participant sees a number."""
    statement = "SELECT FROM numbers WHERE number = %s"
    return bool(query(servers.primary.dsn, statement, number))
