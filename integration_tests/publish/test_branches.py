"""Batches over several databases: all of them or none, whatever happens between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from integration_tests.harness.postgres_driver import (
    SECOND_US,
    PostgresDriver,
    Row,
    counted_windows,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.faultpoints import FaultPoint, Side, arm, disarm_all
from tallyweir.sinks.postgres.branches import participant as postgres_participant
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.testing.planned_batches import PLANNED_AT_US

_NUMBERS = AppendTable(
    table="numbers",
    staging_table="output_0",
    event_columns=(Column(name="number", postgres_type="bigint"),),
    branches=("billing.0", HOME, "billing.1"),
)
_LAYOUT = layout_of(_NUMBERS)


class _KilledError(BaseException):
    """The driver's process died."""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm_all()


def prepared(dsn: str) -> list[Row]:
    """List what is prepared in a database."""
    return query(
        dsn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    )


def _publish(driver: PostgresDriver, first: int) -> PublishOutcome:
    plan = driver.plan(3)
    rows = driver.positioned(plan, [(first,), (first + 1,), (first + 2,)])
    staged = {
        "output_0@billing.0": rows[:1],
        "output_0": rows[1:2],
        "output_0@billing.1": rows[2:],
    }
    return driver.publish(plan, driver.stage(plan, staged))


def _numbers(dsn: str) -> list[int]:
    return [row[0] for row in query(dsn, "SELECT number FROM numbers ORDER BY number")]


def test_a_batch_is_committed_in_every_database(
    home_dsn: str, billing_dsn: str
) -> None:
    """Each row is in its database, nothing stays prepared, and readers are told."""
    driver = PostgresDriver(
        dsn=home_dsn, layout=_LAYOUT, databases={"billing": billing_dsn}
    )
    for first in (0, 3):
        assert PublishOutcome.COMMITTED is _publish(driver, first)
    assert [1, 4] == _numbers(home_dsn)
    assert [0, 2, 3, 5] == _numbers(billing_dsn)
    assert [] == prepared(billing_dsn)
    assert [(2,)] == query(home_dsn, "SELECT sequence FROM tallyweir.visible_through")
    assert [(6,)] == query(home_dsn, "SELECT next_offset FROM tallyweir.visible_offset")


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize(
    "point",
    [
        FaultPoint.BRANCH_PREPARED,
        FaultPoint.ALL_PREPARED,
        FaultPoint.DECISION_COMMITTED,
        FaultPoint.BRANCH_COMMITTED,
        FaultPoint.ALL_COMMITTED,
    ],
)
def test_a_driver_that_dies_leaves_all_of_a_batch_or_nothing(
    home_dsn: str, billing_dsn: str, point: FaultPoint, side: Side
) -> None:
    """The next driver commits what was decided and rolls back what was not."""
    databases = {"billing": billing_dsn}
    old = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    _publish(old, 0)

    def die() -> None:
        raise _KilledError

    arm(point, die, side=side)
    with pytest.raises(_KilledError):
        _publish(old, 3)
    disarm_all()
    old.home.close()
    for participant in old.participants.values():
        participant.close()

    new = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    assert [] == prepared(billing_dsn)
    is_decided = len(query(home_dsn, "SELECT FROM tallyweir.batch")) == 2
    after = (FaultPoint.BRANCH_COMMITTED, FaultPoint.ALL_COMMITTED)
    assert is_decided is (
        point in after
        or (point is FaultPoint.DECISION_COMMITTED and side is Side.AFTER)
    )
    expected = [0, 2, 3, 5] if is_decided else [0, 2]
    assert expected == _numbers(billing_dsn)
    assert PublishOutcome.COMMITTED is _publish(new, 6)
    assert sorted([*expected, 6, 8]) == _numbers(billing_dsn)
    sequence = 3 if is_decided else 2
    assert [(sequence,)] == query(
        home_dsn, "SELECT sequence FROM tallyweir.visible_through"
    )


def test_a_batch_that_only_touches_home_prepares_nothing(
    home_dsn: str, billing_dsn: str
) -> None:
    """No branch, no decision about one, no marker."""
    driver = PostgresDriver(
        dsn=home_dsn, layout=_LAYOUT, databases={"billing": billing_dsn}
    )
    plan = driver.plan(1)
    staged = {"output_0": driver.positioned(plan, [(1,)])}
    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan, staged))
    assert [] == query(home_dsn, "SELECT * FROM tallyweir.batch_branch")
    assert [] == query(billing_dsn, "SELECT * FROM tallyweir_participant.marker")


def test_branches_of_the_home_server_are_published_in_parallel(home_dsn: str) -> None:
    """The parts of one big output land in one table, by several transactions."""
    layout = layout_of(replace(_NUMBERS, branches=("home.0", "home.1")))
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(1,), (2,)])
    staged = {"output_0@home.0": rows[:1], "output_0@home.1": rows[1:]}
    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan, staged))
    assert [1, 2] == _numbers(home_dsn)
    assert [("home.0",), ("home.1",)] == query(
        home_dsn, "SELECT branch FROM tallyweir_participant.marker ORDER BY branch"
    )


def test_a_branch_without_its_staged_rows_decides_nothing(
    home_dsn: str, billing_dsn: str
) -> None:
    """A crash of the participant empties its staging; no database publishes."""
    driver = PostgresDriver(
        dsn=home_dsn, layout=_LAYOUT, databases={"billing": billing_dsn}
    )
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(1,), (2,)])
    tally = driver.stage(plan, {"output_0": rows[:1], "output_0@billing.1": rows[1:]})
    claim = driver.home.claim
    schema = f"tallyweir_stage_{claim.installation}_{claim.pipeline_number}_1"
    execute(billing_dsn, f'TRUNCATE {schema}."output_0@billing.1.1"')
    with pytest.raises(RetryableError) as raised:
        driver.publish(plan, tally)
    assert "STAGED_ROWS_MISSING" == raised.value.code
    assert [] == _numbers(home_dsn)
    assert [] == _numbers(billing_dsn)
    assert [] == prepared(billing_dsn)


def test_a_failed_transaction_that_answers_to_prepare_is_no_vote(
    home_dsn: str, billing_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres says ROLLBACK to PREPARE then, which is a success by its status."""

    @contextmanager
    def failing(connection: psycopg.Connection[Row]) -> Iterator[None]:
        with suppress(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        yield

    driver = PostgresDriver(
        dsn=home_dsn, layout=_LAYOUT, databases={"billing": billing_dsn}
    )
    monkeypatch.setattr(postgres_participant, "standbys_waited_for", failing)
    with pytest.raises(FatalError) as raised:
        _publish(driver, 0)
    assert "PREPARE_REFUSED" == raised.value.code
    assert "ROLLBACK" in raised.value.saw
    assert [] == query(home_dsn, "SELECT FROM tallyweir.batch")
    assert [] == _numbers(billing_dsn)
    assert [] == prepared(billing_dsn)


def test_a_home_that_went_back_stops_before_a_participant_that_did_not(
    home_dsn: str, billing_dsn: str
) -> None:
    """Markers that home knows nothing of are rows that would come twice."""
    databases = {"billing": billing_dsn}
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    _publish(driver, 0)
    _publish(driver, 3)
    execute(
        home_dsn,
        "DELETE FROM tallyweir.batch_branch WHERE sequence = 2",
        "DELETE FROM tallyweir.batch_output WHERE sequence = 2",
        "DELETE FROM tallyweir.batch_partition WHERE sequence = 2",
        "DELETE FROM tallyweir.batch WHERE sequence = 2",
        "UPDATE tallyweir.pipeline SET last_sequence = 1",
        "UPDATE tallyweir.partition_progress SET next_offset = 3",
    )
    with pytest.raises(FatalError) as raised:
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    assert "PARTICIPANT_AHEAD" == raised.value.code


def test_a_participant_that_went_back_stops_the_running_driver(
    home_dsn: str, billing_dsn: str
) -> None:
    """Rows that home believes committed are missing there."""
    databases = {"billing": billing_dsn}
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    _publish(driver, 0)
    _publish(driver, 3)
    execute(
        billing_dsn,
        "DELETE FROM tallyweir_participant.marker WHERE sequence = 2",
        "DELETE FROM numbers WHERE number > 2",
    )
    with pytest.raises(FatalError) as raised:
        _publish(driver, 6)
    assert "PARTICIPANT_BEHIND" == raised.value.code
    assert [1, 4] == _numbers(home_dsn)


def test_a_branch_that_a_pipeline_gave_up_does_not_stop_it(
    home_dsn: str, billing_dsn: str
) -> None:
    """Its markers stay behind, and are not taken for another history."""
    databases = {"billing": billing_dsn}
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    _publish(driver, 0)
    fewer = layout_of(replace(_NUMBERS, branches=(HOME, "billing.1")))
    driver = PostgresDriver(dsn=home_dsn, layout=fewer, databases=databases)
    plan = driver.plan(1)
    staged = {"output_0@billing.1": driver.positioned(plan, [(9,)])}
    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan, staged))
    assert [0, 2, 9] == _numbers(billing_dsn)


_WAITING = replace(
    counted_windows("by_origin", "origin", seconds=10),
    early_us=10 * SECOND_US,
    branches=("billing.0",),
)
_TOLD = "SELECT sequence FROM tallyweir.batch_branch ORDER BY 1"


class _WaitingWindow:
    """A window in one database, and batches that only bring rows to another one."""

    def __init__(self, home_dsn: str, billing_dsn: str) -> None:
        self._dsn = home_dsn
        self._databases = {"billing": billing_dsn}
        self.driver = self._started()

    def _started(self) -> PostgresDriver:
        home_numbers = replace(_NUMBERS, branches=(HOME,))
        return PostgresDriver(
            dsn=self._dsn,
            layout=layout_of(home_numbers, _WAITING),
            databases=self._databases,
        )

    def restart(self) -> None:
        """Have another driver go on."""
        self.driver = self._started()

    def publish(self, after_s: int, *, windows: Sequence[Row] = ()) -> None:
        """Publish a batch, planned so long after the first; no watermark moves."""
        plan = self.driver.plan(1)
        plan = replace(plan, planned_at_us=PLANNED_AT_US + after_s * SECOND_US)
        staged = {"output_0": self.driver.positioned(plan, [(after_s,)])}
        if windows:
            staged["output_1@billing.0"] = list(windows)
        tally = self.driver.stage(plan, staged)
        assert PublishOutcome.COMMITTED is self.driver.publish(plan, tally)


@pytest.mark.parametrize("restarts", [False, True])
def test_windows_that_have_waited_are_shown_wherever_they_are(
    home_dsn: str,
    billing_dsn: str,
    restarts: bool,  # noqa: FBT001 - a parameter of cases
) -> None:
    """By a batch that brings nothing else there; those between prepare nothing."""
    world = _WaitingWindow(home_dsn, billing_dsn)
    shown = "SELECT origin, pane FROM by_origin"
    start = datetime(2026, 3, 1, tzinfo=UTC)
    end = start + timedelta(seconds=10)
    world.publish(0, windows=[(start, end, "JFK", 2, 2, None)])
    world.publish(4, windows=[(start, end, "SFO", 1, 1, None)])
    world.publish(9)
    assert [] == query(billing_dsn, shown)
    if restarts:
        world.restart()
    world.publish(10)
    assert [("JFK", "early")] == query(billing_dsn, shown)
    world.publish(13)
    world.publish(14)
    assert [("JFK", "early"), ("SFO", "early")] == sorted(query(billing_dsn, shown))
    world.publish(60)
    assert [(1,), (2,), (4,), (6,)] == query(home_dsn, _TOLD)
    assert [] == prepared(billing_dsn)
