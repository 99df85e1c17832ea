"""A commit whose wait for the standby is cancelled is unknown, never a success.

Postgres answers it with success and a warning: the transaction is committed on the
primary, and a failover may take it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from integration_tests.harness.postgres_cluster import (
    await_row,
    be_synchronous,
    paused_receiver,
    stand_by,
)
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.sinks.faultpoints import FaultPoint, Side, arm, disarm_all
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import OutcomeUnknownError, RetryableError
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import BatchTally

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_AT_HOME = layout_of(append_table("numbers", number="bigint"))
_ELSEWHERE = layout_of(
    AppendTable(
        table="numbers",
        staging_table="output_0",
        event_columns=(Column(name="number", postgres_type="bigint"),),
        branches=("billing.0",),
    )
)
_Staged = tuple[PostgresDriver, tuple[BatchPlan, BatchTally]]

_WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_NUMBERS = "SELECT number FROM numbers ORDER BY number"


class _Replicated:
    """A primary whose commits wait for its standby."""

    def __init__(self, primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
        self.primary = primary
        self.standby = standby
        self._publishing = ThreadPoolExecutor(1)

    def publish(
        self, driver: PostgresDriver, batch: tuple[BatchPlan, BatchTally]
    ) -> Future[PublishOutcome]:
        """Publish a staged batch in another thread."""
        return self._publishing.submit(driver.publish, *batch)

    def cancel_wait(self, statement: str) -> None:
        """Cancel the next wait for the standby, which must be that statement's."""
        await_row(self.primary.dsn, f"{_WAITING} AND query LIKE '{statement}%'")
        execute(
            self.primary.dsn,
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
            "WHERE wait_event = 'SyncRep'",
        )


@pytest.fixture(scope="module")
def replicated_servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[_Replicated]:
    """Two servers for these tests."""
    directory = tmp_path_factory.mktemp("replicated")
    primary = EmbeddedPostgres(directory / "primary")
    primary.start()
    migrate(primary.dsn)
    standby = stand_by(primary, directory / "standby")
    be_synchronous(primary)
    yield _Replicated(primary, standby)
    standby.stop()
    primary.stop()


@pytest.fixture
def replicated(replicated_servers: _Replicated) -> _Replicated:
    """The two servers, without what another test has left."""
    execute(
        replicated_servers.primary.dsn,
        "DROP TABLE IF EXISTS numbers",
        "DROP SCHEMA IF EXISTS tallyweir_participant CASCADE",
        "TRUNCATE tallyweir_state.result_table",
    )
    return replicated_servers


def test_a_batch_whose_standby_was_not_waited_for_is_asked_for_again(
    replicated: _Replicated,
) -> None:
    """The second answer waits for the standby as well, so it is a promise."""
    driver = PostgresDriver(dsn=replicated.primary.dsn, layout=_AT_HOME)
    plan = driver.plan(1)
    batch = plan, driver.stage(plan, {"output_0": driver.positioned(plan, [(7,)])})
    with paused_receiver(replicated.standby):
        publishing = replicated.publish(driver, batch)
        replicated.cancel_wait("COMMIT")
        with pytest.raises(OutcomeUnknownError) as raised:
            publishing.result(60)
        assert "COMMIT_UNKNOWN" == raised.value.code
        assert [(7,)] == query(replicated.primary.dsn, _NUMBERS)
        assert [] == query(replicated.standby.dsn, _NUMBERS)

        publishing = replicated.publish(driver, batch)
        await_row(replicated.primary.dsn, _WAITING)
        assert not publishing.done()
    assert PublishOutcome.ALREADY_COMMITTED is publishing.result(60)
    await_row(replicated.standby.dsn, _NUMBERS)


def test_a_branch_whose_standby_was_not_waited_for_is_not_voted_for(
    replicated: _Replicated, home_dsn: str
) -> None:
    """Were its batch decided, a failover would lose the branch."""
    driver, batch = _staged_elsewhere(replicated, home_dsn)
    with paused_receiver(replicated.standby):
        publishing = replicated.publish(driver, batch)
        replicated.cancel_wait("PREPARE")
        with pytest.raises(RetryableError):
            publishing.result(60)
    assert [] == query(home_dsn, "SELECT FROM tallyweir.batch")

    assert PublishOutcome.COMMITTED is driver.publish(*batch)
    _assert_settled(replicated)


def test_a_decided_branch_is_not_done_until_its_standby_has_it(
    replicated: _Replicated, home_dsn: str
) -> None:
    """That it is gone and its marker is there is no promise before that."""
    driver, batch = _staged_elsewhere(replicated, home_dsn)
    with ExitStack() as paused:
        arm(
            FaultPoint.BRANCH_COMMITTED,
            lambda: paused.enter_context(paused_receiver(replicated.standby)),
            side=Side.BEFORE,
        )
        publishing = replicated.publish(driver, batch)
        replicated.cancel_wait("COMMIT PREPARED")
        with pytest.raises(RetryableError):
            publishing.result(60)
        disarm_all()
        assert [(7,)] == query(replicated.primary.dsn, _NUMBERS)
        assert [] == query(replicated.standby.dsn, _NUMBERS)

        publishing = replicated.publish(driver, batch)
        await_row(replicated.primary.dsn, _WAITING)
        assert not publishing.done()
    assert PublishOutcome.ALREADY_COMMITTED is publishing.result(60)
    _assert_settled(replicated)


def _staged_elsewhere(replicated: _Replicated, home_dsn: str) -> _Staged:
    """Stage a row for a branch in the replicated database."""
    driver = PostgresDriver(
        dsn=home_dsn, layout=_ELSEWHERE, databases={"billing": replicated.primary.dsn}
    )
    plan = driver.plan(1)
    staged = {"output_0@billing.0": driver.positioned(plan, [(7,)])}
    return driver, (plan, driver.stage(plan, staged))


def _assert_settled(replicated: _Replicated) -> None:
    await_row(replicated.standby.dsn, _NUMBERS)
    assert [(7,)] == query(replicated.primary.dsn, _NUMBERS)
    assert [] == query(replicated.primary.dsn, "SELECT gid FROM pg_prepared_xacts")
