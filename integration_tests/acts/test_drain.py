"""Asking for a drain, ending it, and calling it off, on a real server."""

from __future__ import annotations

import psycopg
import pytest
from typer.testing import CliRunner

from integration_tests.harness.interrupted_session import interrupted
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
from tallyweir.sinks.postgres.ledger.epoch_claims import Drain, read_drain, read_pause
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FencedError,
    RetryableError,
)
from tallyweir.sinks.protocol.identity import Epoch

_LAYOUT = layout_of(append_table("numbers", number="bigint"))
_PIPELINE = _LAYOUT.pipeline
_CLAIMS = "INSERT INTO tallyweir.epoch_claim"


def _publish(driver: PostgresDriver, first: int) -> PublishOutcome:
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(first,), (first + 1,)])
    return driver.publish(plan, driver.stage(plan, {"output_0": rows}))


def _drain(
    dsn: str, *, closes_windows: bool = True, dry_run: bool = False
) -> Drain | None:
    request = steering.ActRequest(
        pipeline=_PIPELINE, kind="drain", reason="a test", dry_run=dry_run
    )
    with psycopg.connect(dsn) as home:
        return steering.drain(home, request, closes_windows=closes_windows)


def _end(dsn: str, asked: Drain, driver: PostgresDriver) -> None:
    with psycopg.connect(dsn) as home:
        epoch = driver.home.claim.epoch
        steering.end_drain(home, _PIPELINE, asked, epoch=epoch)


def _resume(dsn: str) -> str:
    with psycopg.connect(dsn) as home:
        return steering.resume(home, _PIPELINE).told()


def _state(dsn: str) -> str:
    with psycopg.connect(dsn) as home:
        pause, asked = read_pause(home, _PIPELINE), read_drain(home, _PIPELINE)
    assert pause is None or asked is None
    if pause is not None:
        return "drained" if pause.is_drained else "paused"
    return "at work" if asked is None else "draining"


def test_who_asks_fences_the_driver_at_work(home_dsn: str) -> None:
    """Nothing is published any more but by a driver that has claimed since."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert PublishOutcome.COMMITTED is _publish(driver, 0)
    asked = _drain(home_dsn)
    assert asked is not None
    assert (asked.closes_windows, asked.reason) == (True, "a test")
    with pytest.raises(FencedError):
        _publish(driver, 2)
    assert _state(home_dsn) == "draining"
    # Whoever ends it claims; a drain does not keep him as a pause does.
    after = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    _end(home_dsn, asked, after)
    assert _state(home_dsn) == "drained"
    with pytest.raises(FencedError):
        _publish(after, 2)
    with pytest.raises(RetryableError, match=r"PAUSED.*drained since.*a test"):
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert "drained since" in _resume(home_dsn)
    assert PublishOutcome.COMMITTED is _publish(
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT), 2
    )


def test_a_driver_that_was_superseded_ends_no_drain(home_dsn: str) -> None:
    """The newer one may have read on, after somebody called the drain off."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    first = _drain(home_dsn)
    assert first is not None
    old = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    # As a batch run may, which opens windows again.
    new = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    with pytest.raises(FencedError):
        _end(home_dsn, first, old)
    assert "to be drained" in _resume(home_dsn)
    assert PublishOutcome.COMMITTED is _publish(new, 0)
    second = _drain(home_dsn)
    assert second is not None
    with pytest.raises(FencedError):
        _end(home_dsn, first, old)
    assert _state(home_dsn) == "draining"
    # Nor has the try fenced whoever is to end it.
    newest = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    _end(home_dsn, second, newest)
    assert _state(home_dsn) == "drained"


def test_a_drain_that_is_called_off_is_ended_by_nobody(home_dsn: str) -> None:
    """The driver that was about to end it starts over, and reads on."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    asked = _drain(home_dsn)
    assert asked is not None
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    _resume(home_dsn)
    with pytest.raises(FencedError):
        _end(home_dsn, asked, driver)
    assert query(home_dsn, "SELECT count(*) FROM tallyweir.pause") == [(0,)]
    assert PublishOutcome.COMMITTED is _publish(driver, 0)


def test_a_drain_is_asked_for_once_and_in_one_way(home_dsn: str) -> None:
    """The same call waits for the same drain; the other way is refused."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert _drain(home_dsn, dry_run=True) is None
    assert query(home_dsn, "SELECT count(*) FROM tallyweir.drain") == [(0,)]
    asked = _drain(home_dsn)
    assert _drain(home_dsn) == asked
    with pytest.raises(ConfigurationError, match="DRAINED_OTHERWISE"):
        _drain(home_dsn, closes_windows=False)
    _resume(home_dsn)
    with psycopg.connect(home_dsn) as home:
        steering.pause(home, _PIPELINE, reason="another test")
    with pytest.raises(ConfigurationError, match="PAUSED_ALREADY"):
        _drain(home_dsn)


@pytest.mark.parametrize("closes_windows", [True, False])
def test_of_two_who_ask_at_once_both_are_told_of_the_same_drain(
    home_dsn: str, *, closes_windows: bool
) -> None:
    """Neither has seen the other's when it began; in the other way it is refused."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    first: list[Drain | None] = []
    request = steering.ActRequest(pipeline=_PIPELINE, kind="drain", reason="another")
    with interrupted(
        home_dsn, _CLAIMS, lambda: first.append(_drain(home_dsn))
    ) as second:
        if closes_windows:
            asked = steering.drain(second, request, closes_windows=True)
            assert [asked] == first
        else:
            with pytest.raises(ConfigurationError, match="DRAINED_OTHERWISE"):
                steering.drain(second, request, closes_windows=False)
    assert query(home_dsn, "SELECT reason FROM tallyweir.act") == [("a test",)]
    assert query(home_dsn, "SELECT closes_windows FROM tallyweir.drain") == [(True,)]


def test_a_pause_that_comes_just_before_a_drain_is_told(home_dsn: str) -> None:
    """It is looked for once more when nobody else changes the pipeline any more."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)

    def pause() -> None:
        with psycopg.connect(home_dsn) as home:
            steering.pause(home, _PIPELINE, reason="a test")

    request = steering.ActRequest(pipeline=_PIPELINE, kind="drain", reason="another")
    with (
        interrupted(home_dsn, _CLAIMS, pause) as home,
        pytest.raises(ConfigurationError, match=r"PAUSED_ALREADY.*a test"),
    ):
        steering.drain(home, request, closes_windows=True)
    assert _state(home_dsn) == "paused"


def test_a_pipeline_that_drains_is_called_so_and_the_command_waits(
    home_dsn: str, scenario: LedgerScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No longer than it is told; the request stands, and another call waits on."""
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)

    def said(*words: str) -> str:
        arguments = ["drain", DEPARTURES, "--keep-windows", "--reason", "r", *words]
        result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "Nothing was changed" in said("--dry-run")
    assert query(home_dsn, "SELECT count(*) FROM tallyweir.drain") == [(0,)]
    for _ in range(2):
        with pytest.raises(RetryableError, match="DRAIN_UNFINISHED"):
            said("--timeout", "0")
    # That nobody is there to end it is said before it is waited for.
    waited = ["drain", DEPARTURES, "--keep-windows", "--reason", "r", "--timeout", "0"]
    assert "NO DRIVER IS AT WORK" in CliRunner().invoke(build_app(), waited).output
    with psycopg.connect(home_dsn) as home:
        status = audit.read_status(home, DEPARTURES)
        (summary,) = audit.read_overview(home)
    assert status.state(5) is summary.state(5) is PipelineState.DRAINING
    assert status.drain == summary.drain
    assert "to be drained since" in (summary.cause(5) or "")
    # The claim of the act is no driver.
    assert status.driver is not None
    assert status.driver.epoch == scenario.epoch
    assert status.totals.drivers == scenario.epoch
    with psycopg.connect(home_dsn) as home:
        assert status.drain is not None
        epoch = Epoch(status.drain.epoch)
        steering.end_drain(home, DEPARTURES, status.drain, epoch=epoch)
        status = audit.read_status(home, DEPARTURES)
        (summary,) = audit.read_overview(home)
    assert status.state(5) is summary.state(5) is PipelineState.DRAINED
    assert status.pause == summary.pause
    assert "It is drained since" in (summary.cause(5) or "")
