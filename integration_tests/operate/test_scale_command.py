"""``scale`` sets bounds that a driver reads, and shows what drivers have decided."""

from __future__ import annotations

import json

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.interrupted_session import interrupted
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.ledger.scaling_record import (
    LastDecided,
    ScalingRecord,
    read_free_connections,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.scaling.bounds import NOT_SCALED, Bounds, Range
from tallyweir.sinks.scaling.decision import Because, Limits, Standing, decide
from tallyweir.sinks.scaling.load import Observation

_CLAIM = EpochClaim(
    installation="i", pipeline_number=1, epoch=Epoch(1), nonce="0123456789abcdef"
)


@pytest.fixture
def commands(
    scenario: LedgerScenario,
    home_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    """A terminal, beside a ledger."""
    assert scenario is not None
    return CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: home_dsn}
    )


def test_bounds_are_set_kept_and_removed(commands: CommandLine, home_dsn: str) -> None:
    """What is not named stays; a dry run changes nothing."""
    record = ScalingRecord(home_dsn, PIPELINE)
    assert record.read_bounds() == NOT_SCALED
    code, out, _ = commands.run("scale", PIPELINE, "--max-executors", "8", "--dry-run")
    assert code == 0
    assert "executors 1 to 8" in out
    assert record.read_bounds() == NOT_SCALED
    commands.run("scale", PIPELINE, "--max-executors", "8")
    executors = Range(least=1, most=8)
    assert record.read_bounds() == Bounds(executors=executors)
    commands.run("scale", PIPELINE, "--max-batch", "500000")
    batch_offsets = Range(least=20_000, most=500_000)
    assert record.read_bounds() == Bounds(
        executors=executors, batch_offsets=batch_offsets
    )
    code, out, _ = commands.run("scale", PIPELINE, "--json")
    assert json.loads(out)["bounds"]["executors"] == {"least": 1, "most": 8}
    commands.run("scale", PIPELINE, "--off")
    assert record.read_bounds() == NOT_SCALED
    record.close()


def test_of_two_who_set_bounds_at_once_neither_undoes_the_others(
    commands: CommandLine, home_dsn: str
) -> None:
    """Each sets one of them, and neither has seen the other's when it began."""
    assert commands is not None
    executors, batch_offsets = Range(least=2, most=3), Range(least=20_000, most=30_000)

    def set_batch() -> None:
        with psycopg.connect(home_dsn) as home:
            wanted = Bounds(batch_offsets=batch_offsets)
            steering.set_bounds(home, PIPELINE, wanted)

    with interrupted(
        home_dsn, "INSERT INTO tallyweir.scaling_bounds", set_batch
    ) as home:
        both = steering.set_bounds(home, PIPELINE, Bounds(executors=executors))
    assert both == Bounds(executors=executors, batch_offsets=batch_offsets)
    record = ScalingRecord(home_dsn, PIPELINE)
    assert record.read_bounds() == both
    record.close()


def test_what_makes_no_sense_is_refused(commands: CommandLine) -> None:
    """With the code that docs/operations.md explains."""
    for options in (
        ("--min-executors", "4", "--max-executors", "2"),
        ("--min-batch", "4"),
        ("--off", "--max-executors", "2"),
    ):
        code, _, told = commands.run("scale", PIPELINE, *options)
        assert code == 78
        assert "SCALING_BOUNDS" in told
    code, _, told = commands.run("scale", "nobody", "--max-executors", "2")
    assert code == 78
    assert "PIPELINE_UNKNOWN" in told


def test_a_decision_is_kept_with_what_it_was_made_from(
    commands: CommandLine, home_dsn: str
) -> None:
    """Before, after, load, caps and reason; the next driver begins with it."""
    record = ScalingRecord(home_dsn, PIPELINE)
    seen = [
        Observation(
            at_s=5.0 * n,
            arrived=10_000 * n,
            published=1_000 * n,
            busy_s=10.0 * n,
            executors=2,
        )
        for n in range(13)
    ]
    former = Standing(
        executors=2,
        batch_offsets=None,
        executors_changed_at_s=0.0,
        batch_changed_at_s=0.0,
    )
    bounds = Bounds(executors=Range(least=1, most=4))
    decision = decide(bounds, Limits(tasks=9, connections=30), seen, former)
    assert decision.because is Because.BACKLOG
    assert record.read_last() == LastDecided(executors=None, batch_offsets=None)
    record.record(_CLAIM, decision)
    assert record.read_last() == LastDecided(executors=4, batch_offsets=None)
    record.close()
    code, out, _ = commands.run("scale", PIPELINE, "--json")
    assert code == 0
    (found,) = json.loads(out)["decisions"]
    assert (found["executors_before"], found["executors"]) == (2, 4)
    assert (found["backlog"], found["busy"]) == (108_000, 1.0)
    assert (found["tasks_max"], found["connections_max"]) == (9, 30)
    code, out, _ = commands.run("scale", PIPELINE)
    assert "2 -> 4" in out
    assert "backlog: One executor does 100 offsets/s when busy" in out


def test_connections_that_others_hold_are_not_free(
    home_dsn: str, connection: psycopg.Connection[TupleRow]
) -> None:
    """The driver's own are, for its tasks may use them."""
    before = read_free_connections({"home": home_dsn}, _CLAIM)
    with (
        psycopg.connect(home_dsn),
        psycopg.connect(home_dsn),
        psycopg.connect(home_dsn, application_name="tallyweir p1 e1"),
    ):
        after = read_free_connections({"home": home_dsn}, _CLAIM)
    assert before - after == 2
    assert connection.info.status is not None
