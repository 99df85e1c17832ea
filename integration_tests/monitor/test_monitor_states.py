"""What the overview says of fenced drivers, and of when a pipeline was verified."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.command_line import CommandLine
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.audit import PipelineState, PipelineSummary, read_overview
from tallyweir.sinks.postgres.server.naming import HOME, application_name

Connection = psycopg.Connection[TupleRow]


def _summary(connection: Connection) -> PipelineSummary:
    (summary,) = read_overview(connection)
    return summary


def test_an_older_driver_that_is_still_there_is_fenced(
    home_dsn: str, scenario: LedgerScenario, connection: Connection
) -> None:
    """By the overview and by status; with the newest there it is only told."""
    (number,) = connection.execute(
        "SELECT pipeline_number FROM tallyweir.pipeline"
    ).fetchone() or (0,)
    connection.commit()
    assert _summary(connection).state(5) is PipelineState.STOPPED
    older = application_name(number, scenario.epoch - 1)
    with closing(psycopg.connect(home_dsn, application_name=older)):
        summary = _summary(connection)
        assert summary.state(5) is PipelineState.FENCED
        assert "epoch 1 is still connected" in (summary.cause(5) or "")
        status = audit.read_status(connection, PIPELINE)
        assert status.state(5) is PipelineState.FENCED
        newest = application_name(number, scenario.epoch)
        with closing(psycopg.connect(home_dsn, application_name=newest)):
            summary = _summary(connection)
            assert summary.state(0) is PipelineState.CAUGHT_UP
            assert "epoch 1 is still connected" in (summary.cause(0) or "")


def test_the_last_receipt_is_kept_with_its_time(
    home_dsn: str,
    scenario: LedgerScenario,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of who verifies; a newer one takes its place."""
    assert scenario.sequence == 3
    assert _summary(connection).receipt is None
    line = CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: home_dsn}
    )
    code, _, _ = line.run("verify", PIPELINE)
    first = _summary(connection).receipt
    assert first is not None
    assert (first.is_verified, first.batches) == (code == 0, 3)
    connection.execute("DELETE FROM departures WHERE kafka_offset = 0")
    connection.commit()
    line.run("verify", PIPELINE)
    second = _summary(connection).receipt
    assert second is not None
    assert not second.is_verified
    assert "append_outputs" in second.summary
    assert second.taken_at > first.taken_at


def test_who_may_not_keep_a_receipt_is_told_what_was_found(
    home_dsn: str,
    scenario: LedgerScenario,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a standby, or as somebody who only reads."""
    assert scenario.sequence == 3
    connection.execute("DROP TABLE tallyweir.receipt CASCADE")
    connection.execute("CREATE VIEW tallyweir.receipt AS SELECT 1 AS nothing")
    connection.commit()
    line = CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: home_dsn}
    )
    _, out, error = line.run("verify", PIPELINE)
    assert f"Pipeline {PIPELINE}:" in out
    assert "could not be stored for the monitor" in error
