"""Chaos proves what it says, would notice if it were not so, and cleans up."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from integration_tests.harness.command import Command, signal_at
from integration_tests.harness.finished_database import fill
from tallyweir.services.dev.chaos.observed_run import ObservedRun, observe
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.services.dev.chaos.self_test import Damage, run_self_test
from tallyweir.services.dev.chaos.tests.finished_run import (
    PARTICIPANT,
    finished,
    in_two_databases,
    sent_records,
    witnesses,
)
from tallyweir.services.dev.chaos.verdict import has_failed, judge_tables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]

_SEED = 25
_SELF_TEST_SEEDS = 100
_NUMBERED = {
    *("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11"),
    *("I12", "I13", "I14"),
}


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Command]:
    """A run that has not begun; nothing of it is there before or after."""
    command = Command("chaos", tmp_path)
    yield command
    assert command.processes() == []
    assert [path.name for path in (tmp_path / "chaos").iterdir()] == ["lock"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kills", "event_format"), [(25, "avro"), (12, "json"), (13, "registry")]
)
def test_no_fault_loses_doubles_or_fractures_anything(
    chaos: Command, kills: int, event_format: str
) -> None:
    """Every invariant holds and was checked; every fault hit something at work.

    Over several databases, because what happens to one happens to the home as well.
    """
    process = chaos.start(
        *("--kills", str(kills), "--events", "20000", "--seed", str(_SEED), "--json"),
        *("--databases", "3", "--format", event_format),
    )
    output, lines = process.communicate()

    assert process.returncode == 0, output + lines
    report = json.loads(output.splitlines()[-1])
    assert report["verdict"] == "ok"
    assert report["seed"] == _SEED
    assert sum(report["kills"].values()) == kills
    assert report["prepared_left"] == 0
    assert report["recovery_seconds"]["n"] > 0
    assert report["events"]["unique"] == 20_000
    assert report["events"]["duplicate"] == 2_000
    assert report["events"]["bad"] == 1_000
    assert report["events"]["aborted"] > 2_000
    transactions = report["transactions"]
    assert transactions.keys() == {"committed", "aborted"}
    assert transactions["aborted"] > 0.2 * sum(transactions.values())
    assert {name.split("_")[0] for name in _names(report)} >= _NUMBERED
    for invariant in report["invariants"]:
        assert invariant["violations"] == 0, invariant
        is_checked = invariant["checked"] > 0
        assert is_checked or invariant["verdict"] == "not_applicable", invariant
    assert report["snapshots"] > kills
    assert 0 < report["staged_by_tasks"] < report["batches"]


@pytest.mark.long
def test_an_interrupted_run_leaves_nothing_behind(chaos: Command) -> None:
    """Whoever interrupts chaos gets the machine back as it was."""
    process = chaos.start("--kills", "5", "--events", "2000")
    signal_at(process, "driver 1 started", signal.SIGINT)
    _, lines = process.communicate()

    assert process.returncode == 128 + signal.SIGINT, lines


@pytest.fixture
def other_dsn(empty_dsn: str) -> Iterator[str]:
    """A second database beside the test's own."""
    name = f"{psycopg.conninfo.conninfo_to_dict(empty_dsn)['dbname']}_other"
    database = sql.Identifier(name)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(database))
        yield make_conninfo(empty_dsn, dbname=name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


def test_the_checker_notices_each_damage_to_a_finished_database(
    empty_dsn: str, other_dsn: str
) -> None:
    """Five kinds of damage, 100 seeds: all noticed, and the tables are as before."""
    sent = sent_records(_SEED)
    found = replace(in_two_databases(finished(sent)), decided=(), markers=())
    dsns = {HOME: empty_dsn, PARTICIPANT: other_dsn}
    fill(dsns, sent, found)
    seen = witnesses(found)
    noticed: Counter[Damage] = Counter()
    with ExitStack() as stack:
        connections = {
            name: stack.enter_context(
                psycopg.connect(dsn, autocommit=True, options="-c timezone=UTC")
            )
            for name, dsn in dsns.items()
        }
        assert _sorted(observe(connections)) == _sorted(found)
        assert not has_failed(judge_tables(sent, found, seen))
        for seed in range(_SELF_TEST_SEEDS):
            noticed.update(
                damage
                for damage, was_noticed in run_self_test(
                    connections,
                    lambda spoilt: has_failed(judge_tables(sent, spoilt, seen)),
                    seed=seed,
                ).items()
                if was_noticed
            )
        assert _sorted(observe(connections)) == _sorted(found)
    assert noticed == dict.fromkeys(Damage, _SELF_TEST_SEEDS)


def _names(report: dict[str, list[dict[str, str]]]) -> list[str]:
    return [invariant["name"] for invariant in report["invariants"]]


def _sorted(found: ObservedRun) -> ObservedRun:
    """Order what a database gives in any order."""
    return replace(
        found,
        rows=tuple(sorted(found.rows, key=lambda row: row.place)),
        duplicates=tuple(sorted(found.duplicates)),
        dead_letters=tuple(sorted(found.dead_letters)),
        windows=tuple(sorted(found.windows)),
    )
