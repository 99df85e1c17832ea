"""What the ledger's batches have used is added up, and its budget kept."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from integration_tests.harness.command_line import CommandLine
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.sinks.postgres.server.naming import HOME

_STEPS = {"copy": {"cpu_seconds": 0.5, "rows_out": 4, "bytes": 400}}
_MEASURES = {
    "steps": _STEPS,
    "seconds": {"publish": 0.2, "publish_rows": 0.1},
    "cpu_seconds": {"driver": 2.0, "tasks": 1.0},
    "wal_bytes": 1_000,
    "from_a_later_version": [1],
}


@pytest.fixture
def commands(
    scenario: LedgerScenario,
    connection: psycopg.Connection[TupleRow],
    home_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    """A terminal, beside a ledger of three batches of which two were measured."""
    for sequence in (1, 2):
        connection.execute(
            "INSERT INTO tallyweir.batch_measures VALUES (%s, %s, %s)",
            (PIPELINE, sequence, Jsonb(_MEASURES)),
        )
    connection.execute("UPDATE tallyweir.batch SET published_at = now()")
    connection.commit()
    assert scenario is not None
    return CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: home_dsn}
    )


def test_measured_batches_are_added_up(commands: CommandLine) -> None:
    """Those that nobody has measured are left out of every sum."""
    code, out, _ = commands.run("cost", PIPELINE, "--json")
    assert code == 0
    found = json.loads(out)
    usage = found["usage"]
    assert usage["batches"] == 2
    assert usage["read"] == 4 + 5 + 4 + 5
    assert usage["cpu_seconds"] == {"driver": 4.0, "tasks": 2.0}
    assert usage["wal_bytes"] == 2_000
    assert usage["steps"]["copy"]["bytes"] == 800
    assert usage["publish_seconds"] == {"rows": 0.2}
    assert usage["outputs"]
    assert found["cost"] is None


def test_a_day_over_the_budget_ends_with_1(
    commands: CommandLine, tmp_path: Path
) -> None:
    """So that a job of the night can tell; within it, with 0."""
    prices = tmp_path / "prices.yaml"
    text = "{currency: EUR, vcpu_hour: 3600, budget: {per_day: %s}}"
    prices.write_text(text % "0.001")
    code, out, _ = commands.run("cost", PIPELINE, "--prices", str(prices))
    assert code == 1
    assert "Total 6.000000 EUR" in out
    assert "a day: OVER" in out
    prices.write_text(text % "1e12")
    code, out, _ = commands.run("cost", PIPELINE, "--prices", str(prices), "--json")
    assert code == 0
    found = json.loads(out)
    assert found["budget"] == {
        "per_day": 1e12,
        "per_million_events": None,
        "is_over": False,
    }
    assert found["cost"]["total"] == pytest.approx(6.0)


def test_what_was_published_before_the_span_is_left_out(
    commands: CommandLine, connection: psycopg.Connection[TupleRow]
) -> None:
    """A span with nothing in it costs nothing."""
    connection.execute(
        "UPDATE tallyweir.batch SET published_at = now() - interval '2 hours'"
    )
    connection.commit()
    code, out, _ = commands.run("cost", PIPELINE, "--since", "1 hour", "--json")
    assert code == 0
    assert json.loads(out)["usage"]["batches"] == 0
    code, _, told = commands.run("cost", PIPELINE, "--since", "soon")
    assert code == 2
    assert "90 s" in told
