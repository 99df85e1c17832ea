"""A pause keeps whoever works from publishing, and everybody from claiming."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.rows import TupleRow
from typer.testing import CliRunner

from integration_tests.harness.postgres_cluster import await_row
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    layout_of,
    query,
)
from integration_tests.ledger_scenario import PIPELINE as DEPARTURES
from integration_tests.ledger_scenario import LedgerScenario
from tallyweir.services.cli.app import build_app
from tallyweir.sinks.postgres import audit, steering
from tallyweir.sinks.postgres.audit import PipelineState
from tallyweir.sinks.postgres.ledger.epoch_claims import Pause, read_pause
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FencedError,
    RetryableError,
)

_LAYOUT = layout_of(append_table("numbers", number="bigint"))
_PIPELINE = _LAYOUT.pipeline
_WAITING = (
    "SELECT FROM pg_stat_activity WHERE application_name = 'test pause' "
    "AND wait_event_type = 'Lock'"
)


def _publish(driver: PostgresDriver, first: int) -> PublishOutcome:
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(first,), (first + 1,)])
    return driver.publish(plan, driver.stage(plan, {"output_0": rows}))


def _pause(dsn: str, *, lock_timeout_ms: int = 30_000) -> Pause | None:
    with psycopg.connect(dsn, application_name="test pause") as home:
        return steering.pause(
            home, _PIPELINE, reason="a test", lock_timeout_ms=lock_timeout_ms
        )


def _resume(dsn: str) -> None:
    with psycopg.connect(dsn) as home:
        steering.resume(home, _PIPELINE)


def _numbers(dsn: str) -> list[int]:
    return [row[0] for row in query(dsn, "SELECT number FROM numbers ORDER BY number")]


def _claims(dsn: str) -> int:
    ((claims,),) = query(dsn, "SELECT count(*) FROM tallyweir.epoch_claim")
    return int(claims)


@contextmanager
def _publishing(dsn: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """Hold the pipeline's row as a publish transaction does."""
    with psycopg.connect(dsn) as publisher:
        publisher.execute("SELECT FROM tallyweir.pipeline FOR NO KEY UPDATE")
        yield publisher


def test_nothing_is_published_from_the_pause_on(home_dsn: str) -> None:
    """Not by the driver that works; what it has staged is of no use any more."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert PublishOutcome.COMMITTED is _publish(driver, 0)
    paused = _pause(home_dsn)
    assert paused is not None
    assert (paused.reason, paused.last_sequence) == ("a test", 1)
    with pytest.raises(FencedError):
        _publish(driver, 2)
    assert [0, 1] == _numbers(home_dsn)


def test_after_the_pause_the_next_driver_goes_on_where_it_stood(home_dsn: str) -> None:
    """Every number is there once."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    _publish(driver, 0)
    _pause(home_dsn)
    with pytest.raises(FencedError):
        _publish(driver, 2)
    _resume(home_dsn)
    with pytest.raises(FencedError):
        # It has not claimed again.
        _publish(driver, 2)
    after = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert PublishOutcome.COMMITTED is _publish(after, 2)
    assert [0, 1, 2, 3] == _numbers(home_dsn)
    ((by, at),) = query(home_dsn, "SELECT resumed_by, resumed_at FROM tallyweir.pause")
    assert by is not None
    assert at is not None


def test_nobody_claims_while_a_pause_lasts(home_dsn: str) -> None:
    """A claim would end the pause without anybody having said so."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    newest = driver.home.read_newest_driver_claim()
    _pause(home_dsn)
    claims = _claims(home_dsn)
    with pytest.raises(RetryableError, match=r"PAUSED.*a test"):
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert _claims(home_dsn) == claims
    # Or the driver that waits would take the pause for a successor, and end.
    assert driver.home.read_newest_driver_claim() == newest
    hold = driver.home.read_hold()
    assert hold is not None
    assert "a test" in hold
    _resume(home_dsn)
    assert driver.home.read_hold() is None


def test_a_pause_waits_for_the_publish_at_hand(home_dsn: str) -> None:
    """What it is told as the last batch is the last one."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    with ThreadPoolExecutor(1) as pool:
        with _publishing(home_dsn) as publisher:
            pausing = pool.submit(_pause, home_dsn)
            await_row(home_dsn, _WAITING)
            publisher.execute("UPDATE tallyweir.pipeline SET last_sequence = 5")
            publisher.commit()
        paused = pausing.result(timeout=60)
    assert paused is not None
    assert paused.last_sequence == 5


def test_a_pause_that_a_publish_keeps_waiting_changes_nothing(home_dsn: str) -> None:
    """Its claim is taken back with it, so that the driver is not fenced."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    claims = _claims(home_dsn)
    with _publishing(home_dsn), pytest.raises(RetryableError):
        _pause(home_dsn, lock_timeout_ms=50)
    assert _claims(home_dsn) == claims
    assert PublishOutcome.COMMITTED is _publish(driver, 0)


def test_a_claim_beside_a_pause_comes_before_it_or_not_at_all(home_dsn: str) -> None:
    """The pause has its number and is not committed when the driver wants one."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    with ThreadPoolExecutor(2) as pool:
        with _publishing(home_dsn):
            pausing = pool.submit(_pause, home_dsn)
            await_row(home_dsn, _WAITING)
            claiming: Future[PostgresDriver] = pool.submit(
                lambda: PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
            )
            await_row(home_dsn, _CLAIM_WAITS)
        assert pausing.result(timeout=60) is not None
        with pytest.raises(RetryableError, match="PAUSED"):
            claiming.result(timeout=60)


#: For the number that the pause has taken.
_CLAIM_WAITS = (
    "SELECT FROM pg_stat_activity WHERE wait_event = 'transactionid' "
    "AND query LIKE '%INSERT INTO tallyweir.epoch_claim%' "
    "AND application_name <> 'test pause'"
)


def test_of_two_pauses_at_once_one_is_told_of_the_other(home_dsn: str) -> None:
    """Who resumes must know whose pause it is."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    with ThreadPoolExecutor(2) as pool:
        with _publishing(home_dsn):
            both = [pool.submit(_pause, home_dsn) for _ in range(2)]
            await_row(home_dsn, f"{_WAITING} OFFSET 1")
        errors = [one.exception(timeout=60) for one in both]
    assert errors.count(None) == 1
    (error,) = (one for one in errors if one is not None)
    assert isinstance(error, ConfigurationError)
    assert error.code == "PAUSED_ALREADY"


def test_a_paused_pipeline_is_called_so(
    home_dsn: str, scenario: LedgerScenario
) -> None:
    """Neither stopped nor stalled, by status and by the overview of the monitor."""
    with psycopg.connect(home_dsn) as home:
        steering.pause(home, DEPARTURES, reason="a test")
        status = audit.read_status(home, DEPARTURES)
        (summary,) = audit.read_overview(home)
    assert status.state(5) is summary.state(5) is PipelineState.PAUSED
    assert status.pause == summary.pause
    assert "a test" in (summary.cause(5) or "")
    # The claim of the pause is no driver.
    assert status.driver is not None
    assert status.driver.epoch == scenario.epoch


def test_the_commands_say_what_they_do_and_do_it(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --dry-run they only say it; where there is nothing to do they refuse."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    reason = ("--reason", "loading anew")
    assert "can be paused" in said("pause", _PIPELINE, *reason, "--dry-run")
    with pytest.raises(ConfigurationError, match="NOT_PAUSED"):
        said("resume", _PIPELINE)
    with pytest.raises(ConfigurationError, match="REASON_MISSING"):
        said("pause", _PIPELINE, "--reason", " ")
    assert "paused after batch 0" in said("pause", _PIPELINE, *reason)
    with pytest.raises(ConfigurationError, match=r"PAUSED_ALREADY.*loading anew"):
        said("pause", _PIPELINE, *reason)
    assert "loading anew" in said("resume", _PIPELINE, "--dry-run")
    with psycopg.connect(home_dsn) as home:
        assert read_pause(home, _PIPELINE) is not None
    assert "loading anew" in said("resume", _PIPELINE)
    with psycopg.connect(home_dsn) as home:
        assert read_pause(home, _PIPELINE) is None
