"""``repair --plan``: who follows it gets to the exact right result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.fresh_databases import (
    close,
    copied_database,
    die_publishing,
    fresh_database,
    numbers,
    prepared,
    publish_numbers,
)
from integration_tests.harness.postgres_driver import (
    PIPELINE,
    PostgresDriver,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.faultpoints import FaultPoint, Side
from tallyweir.sinks.postgres.audit import repair
from tallyweir.sinks.postgres.ledger.audited_pipeline import AuditedPipeline
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.tables.foreign_code import keep_tables
from tallyweir.sinks.protocol.errors import FatalError, RetryableError

_NUMBERS = AppendTable(
    table="numbers",
    staging_table="output_0",
    event_columns=(Column(name="number", postgres_type="bigint"),),
    branches=("audit.0", HOME, "billing.0"),
)
#: What a driver registers of the pipeline, as far as audits read it.
_DEFINITION = {
    "source": {
        "topic": "numbers",
        "schema": "numbers",
        "event_id": {"field": "number"},
        "event_time": "at",
    },
    "deduplicate": None,
    "outputs": [
        {"kind": "append", "table": "numbers", "databases": ["audit", HOME, "billing"]}
    ],
}
_LAYOUT = replace(layout_of(_NUMBERS), definition=json.dumps(_DEFINITION))

Databases = dict[str, str]


class Backups:
    """Copies of databases, for a test to restore."""

    def __init__(self, server_dsn: str, opened: ExitStack) -> None:
        self._server_dsn = server_dsn
        self._opened = opened

    def take(self, dsn: str) -> str:
        """Copy a database as it is now."""
        return self._opened.enter_context(copied_database(self._server_dsn, dsn))


@pytest.fixture
def databases(home_dsn: str, server_dsn: str) -> Iterator[Databases]:
    """A home and two participants."""
    with (
        fresh_database(server_dsn, "audit") as audit,
        fresh_database(server_dsn, "billing") as billing,
    ):
        yield {HOME: home_dsn, "audit": audit, "billing": billing}


@pytest.fixture
def backups(server_dsn: str) -> Iterator[Backups]:
    """Removes what was copied."""
    with ExitStack() as opened:
        yield Backups(server_dsn, opened)


class Repairing:
    """Someone on call: asks for the plan and follows it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def plan(self, databases: Databases) -> dict[str, Any]:
        """Return the plan; its exit code must tell whether there is something to do."""
        terminal = CommandLine(
            monkeypatch=self._monkeypatch, capsys=self._capsys, databases=databases
        )
        code, out, err = terminal.run("repair", PIPELINE, "--plan", "--json")
        assert "" == err
        found: dict[str, Any] = json.loads(out)
        assert code == (0 if found["agrees"] else 1)
        return found

    def text(self, databases: Databases) -> str:
        """Return the plan as people read it."""
        terminal = CommandLine(
            monkeypatch=self._monkeypatch, capsys=self._capsys, databases=databases
        )
        return terminal.run("repair", PIPELINE, "--plan")[1]


@pytest.fixture
def repairing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Repairing:
    """A terminal."""
    return Repairing(monkeypatch, capsys)


def _follow(plan: Mapping[str, Any], databases: Databases) -> list[str]:
    """Run the statements of a plan; each must answer what stands beside it."""
    ran = []
    for step in plan["steps"]:
        if step["statements"] is None:
            continue
        with psycopg.connect(databases[step["database"]], autocommit=True) as there:
            for statement, answer in re.findall(
                r"(.*?;)(?:  -- (DELETE \d+))?(?:\n|$)", step["statements"], re.DOTALL
            ):
                told = there.execute(statement.encode()).statusmessage
                if answer:
                    assert answer == told
        ran.append(step["database"])
    return ran


def _driver(databases: Databases) -> PostgresDriver:
    return PostgresDriver(dsn=databases[HOME], layout=_LAYOUT, databases=databases)


def _publish(databases: Databases, *firsts: int) -> None:
    """Start a driver, publish batches and end it."""
    driver = _driver(databases)
    for first in firsts:
        publish_numbers(driver, first)
    close(driver)


def _refused(databases: Databases) -> str:
    with pytest.raises(FatalError) as raised:
        _driver(databases)
    return raised.value.code


def _check_result(databases: Databases, *firsts: int) -> None:
    for number, name in enumerate(("audit", HOME, "billing")):
        assert [first + number for first in firsts] == numbers(databases[name])
        assert [] == prepared(databases[name])


def test_databases_that_agree_need_no_repair(
    databases: Databases, repairing: Repairing
) -> None:
    """Neither before the first batch nor after."""
    close(_driver(databases))
    assert repairing.plan(databases)["agrees"]
    _publish(databases, 0, 3)
    assert repairing.plan(databases)["agrees"]
    assert (
        "Pipeline numbers: all databases agree; branches: audit.0, billing.0.\n"
        == repairing.text(databases)
    )


def test_a_home_that_went_back_is_repaired_by_the_printed_statements(
    databases: Databases, backups: Backups, repairing: Repairing
) -> None:
    """Rows that will be read again are taken out; reading on, each counts once."""
    _publish(databases, 0)
    home = backups.take(databases[HOME])
    _publish(databases, 3, 6)
    # A stranger's rows in the same table stay.
    execute(
        databases["billing"], "INSERT INTO numbers VALUES (100, 'other', 0, 1000000)"
    )
    restored = {**databases, HOME: home}
    assert "PARTICIPANT_AHEAD" == _refused(restored)

    plan = repairing.plan(restored)
    assert ["PARTICIPANT_AHEAD"] * 2 == [b["code"] for b in plan["branches"]]
    assert [2, 3] == [e["sequence"] for e in plan["branches"][1]["only_marked"]]
    assert [("audit", 2), ("billing", 2)] == [
        (rows["database"], rows["rows"]) for rows in plan["rows_beyond"]
    ]
    assert ["numbers[0]@3", "numbers[0]@6"] == plan["rows_beyond"][0]["examples"]
    before = [query(restored[name], "SELECT FROM numbers") for name in restored]
    text = repairing.text(restored)
    assert "Nothing was changed." in text
    assert before == [query(restored[name], "SELECT FROM numbers") for name in restored]

    assert ["audit", "billing"] == _follow(plan, restored)
    assert repairing.plan(restored)["agrees"]
    execute(restored["billing"], "DELETE FROM numbers WHERE number = 100")
    _check_result(restored, 0)
    _publish(restored, 3, 6)
    _check_result(restored, 0, 3, 6)


def test_a_participant_that_went_back_is_repaired_by_taking_home_back(
    databases: Databases, backups: Backups, repairing: Repairing
) -> None:
    """To the printed time; what is ahead then is repaired as such."""
    _publish(databases, 0)
    billing = backups.take(databases["billing"])
    home = backups.take(databases[HOME])
    _publish(databases, 3, 6)
    _check_result(databases, 0, 3, 6)
    restored = {**databases, "billing": billing}
    assert "PARTICIPANT_BEHIND" == _refused(restored)

    plan = repairing.plan(restored)
    by_branch = {branch["branch"]: branch for branch in plan["branches"]}
    assert by_branch["audit.0"]["code"] is None
    assert "PARTICIPANT_BEHIND" == by_branch["billing.0"]["code"]
    assert ["numbers[0] 3..9"] == plan["missing"]
    assert [] == _follow(plan, restored)
    # The backup is what a restore to the printed time gives: batch 1, not batch 2.
    target = _target_time(plan, "restore home to just before")
    ((published,),) = query(home, "SELECT max(published_at) FROM tallyweir.batch")
    ((missing,),) = query(
        databases[HOME], "SELECT published_at FROM tallyweir.batch WHERE sequence = 2"
    )
    assert published < target == missing

    restored = {**restored, HOME: home}
    assert "PARTICIPANT_AHEAD" == _refused(restored)
    assert ["audit"] == _follow(repairing.plan(restored), restored)
    _publish(restored, 3, 6)
    _check_result(restored, 0, 3, 6)


def test_a_participant_that_went_back_is_repaired_by_a_later_restore_of_it(
    databases: Databases, backups: Backups, repairing: Repairing
) -> None:
    """Home stays as it is."""
    _publish(databases, 0)
    early = backups.take(databases["billing"])
    _publish(databases, 3)
    late = backups.take(databases["billing"])
    assert not repairing.plan({**databases, "billing": early})["agrees"]
    restored = {**databases, "billing": late}
    assert repairing.plan(restored)["agrees"]
    _publish(restored, 6)
    _check_result(restored, 0, 3, 6)


def test_a_branch_rolled_back_by_hand_is_found(
    databases: Databases, backups: Backups, repairing: Repairing
) -> None:
    """What is in doubt beside it is finished first."""
    _publish(databases, 0)
    home = backups.take(databases[HOME])
    die_publishing(
        _driver(databases), 3, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    (gid,) = prepared(databases["billing"])
    execute(databases["billing"], f"ROLLBACK PREPARED '{gid}'")
    plan = repairing.plan(databases)
    by_branch = {branch["branch"]: branch for branch in plan["branches"]}
    assert [gid] == [entry["gid"] for entry in by_branch["billing.0"]["only_decided"]]
    assert [2] == [entry["sequence"] for entry in by_branch["audit.0"]["in_doubt"]]
    assert ["numbers[0] 3..6"] == plan["missing"]
    assert "tallyweir resolver --once" == plan["steps"][1]["command"]
    assert "BRANCH_LOST" == _refused(databases)

    restored = {**databases, HOME: home}
    terminal_plan = repairing.plan(restored)
    _follow(terminal_plan, restored)
    _publish(restored, 3)
    _check_result(restored, 0, 3)


def test_what_a_participant_shows_in_place_of_a_table_runs_nothing(
    databases: Databases,
    backups: Backups,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another role may own the tables there, and whoever repairs may do all."""
    _publish(databases, 0)
    home = backups.take(databases[HOME])
    _publish(databases, 3)
    execute(
        databases["billing"],
        "CREATE SEQUENCE theft",
        "ALTER TABLE numbers RENAME TO real",
        "CREATE VIEW numbers AS SELECT * FROM real WHERE nextval('theft') > 0",
        "ALTER VIEW numbers OWNER TO pg_monitor",
    )
    terminal = CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={**databases, HOME: home}
    )
    code, _, err = terminal.run("repair", PIPELINE, "--plan")
    assert (78, True) == (code, "public.numbers is a view" in err)
    assert [(False,)] == query(databases["billing"], "SELECT is_called FROM theft")


def test_a_connection_that_is_lost_ahead_of_the_rows_is_told_by_its_code(
    databases: Databases, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be lost before anything is read there."""
    _publish(databases, 0)
    home = backups.take(databases[HOME])
    _publish(databases, 3)

    def lose(
        connection: psycopg.Connection[TupleRow],
        pipeline: AuditedPipeline,
        database: str = HOME,
    ) -> frozenset[str]:
        if database != HOME:
            pid = connection.info.backend_pid
            execute(home, f"SELECT pg_terminate_backend({pid}, 5000)")
        return keep_tables(connection, pipeline, database)

    monkeypatch.setattr(repair, "keep_tables", lose)
    beside = {name: dsn for name, dsn in databases.items() if name != HOME}
    with (
        connect(home, application_name="test") as asking,
        pytest.raises(RetryableError),
    ):
        repair.find_disagreement(asking, PIPELINE, beside)


def test_without_plan_nothing_is_done(
    databases: Databases,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There is no repair but by hand."""
    terminal = CommandLine(monkeypatch=monkeypatch, capsys=capsys, databases=databases)
    code, _, err = terminal.run("repair", PIPELINE)
    assert 2 == code
    assert "repair is done by hand" in err


def _target_time(plan: Mapping[str, Any], text: str) -> datetime:
    (step,) = (step for step in plan["steps"] if text in step["text"])
    found = re.search(r"recovery_target_time = '([^']+)'", step["text"])
    assert found is not None
    return datetime.fromisoformat(found[1])
