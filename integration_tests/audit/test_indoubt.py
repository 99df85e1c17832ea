"""``indoubt``: shows every branch of ours, and refuses to contradict a decision."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.fresh_databases import (
    die_publishing,
    fresh_database,
    numbers,
    prepared,
    prepared_branches,
    publish_numbers,
)
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.faultpoints import FaultPoint, Side
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME

_LAYOUT = layout_of(
    AppendTable(
        table="numbers",
        staging_table="output_0",
        event_columns=(Column(name="number", postgres_type="bigint"),),
        branches=(HOME, "billing.0"),
    )
)


@pytest.fixture
def databases(home_dsn: str, server_dsn: str) -> Iterator[dict[str, str]]:
    """A home and a participant."""
    with fresh_database(server_dsn, "billing") as billing:
        yield {HOME: home_dsn, "billing": billing}


@pytest.fixture
def command_line(
    databases: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    """A terminal beside them."""
    return CommandLine(monkeypatch=monkeypatch, capsys=capsys, databases=databases)


def _driver(databases: dict[str, str]) -> PostgresDriver:
    return PostgresDriver(dsn=databases[HOME], layout=_LAYOUT, databases=databases)


def _claim(databases: dict[str, str]) -> None:
    home = PostgresHome(databases[HOME], _LAYOUT)
    home.claim_epoch()
    home.close()


def _only_branch(databases: dict[str, str]) -> str:
    (gid,) = prepared_branches(databases["billing"])
    return str(gid)


def test_nothing_in_doubt_is_said_in_one_line(
    databases: dict[str, str], command_line: CommandLine
) -> None:
    """With the databases that were looked into."""
    publish_numbers(_driver(databases), 0)
    code, out, _ = command_line.run("indoubt", "list")
    assert (0, "Nothing is in doubt; checked home, billing.\n") == (code, out)


def test_a_decided_branch_can_be_committed_and_not_rolled_back(
    databases: dict[str, str], command_line: CommandLine
) -> None:
    """The refusal names the decision and the command that agrees with it."""
    die_publishing(
        _driver(databases), 0, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    gid = _only_branch(databases)
    code, out, _ = command_line.run("indoubt", "list")
    assert 0 == code
    assert "1 prepared branch is in doubt" in out
    assert f"\n{gid}\n" in out
    assert "decided   yes, as batch 1 at" in out
    assert "resolver  commits it: batch 1 is decided" in out

    code, _, err = command_line.run("indoubt", "rollback", gid)
    assert 78 == code
    assert err.startswith("INDOUBT_DECIDED\n")
    assert f"fix: tallyweir indoubt commit {gid}" in err
    assert [gid] == prepared(databases["billing"])

    code, out, _ = command_line.run("indoubt", "commit", gid)
    assert (0, f"Committed {gid}.\n") == (code, out)
    assert [1] == numbers(databases["billing"])
    assert [(1,)] == query(
        databases[HOME], "SELECT sequence FROM tallyweir.visible_through"
    )
    code, _, err = command_line.run("indoubt", "commit", gid)
    assert 78 == code
    assert err.startswith("INDOUBT_NOT_PREPARED\n")
    assert "its marker says that it is committed" in err


def test_a_branch_that_its_driver_may_decide_is_refused_both_ways(
    databases: dict[str, str], command_line: CommandLine
) -> None:
    """Nobody but that driver knows what comes next."""
    die_publishing(_driver(databases), 0, FaultPoint.ALL_PREPARED, side=Side.AFTER)
    gid = _only_branch(databases)
    for action in ("commit", "rollback"):
        code, _, err = command_line.run("indoubt", action, gid)
        assert 78 == code
        assert err.startswith("INDOUBT_DRIVER_MAY_DECIDE\n")
        assert "start pipeline numbers" in err
    assert [gid] == prepared(databases["billing"])


def test_an_orphan_can_be_rolled_back_and_not_committed(
    databases: dict[str, str], command_line: CommandLine
) -> None:
    """Its events are read again, so its rows would come twice."""
    die_publishing(_driver(databases), 0, FaultPoint.ALL_PREPARED, side=Side.AFTER)
    _claim(databases)
    gid = _only_branch(databases)
    code, _, err = command_line.run("indoubt", "commit", gid)
    assert 78 == code
    assert err.startswith("INDOUBT_UNDECIDED\n")
    assert "epoch 2" in err
    assert [gid] == prepared(databases["billing"])
    assert 0 == command_line.run("indoubt", "rollback", gid)[0]
    assert [] == prepared(databases["billing"])
    assert [] == numbers(databases["billing"])


def test_what_is_not_ours_is_refused_and_not_shown(
    databases: dict[str, str], command_line: CommandLine
) -> None:
    """Other programs', other homes', and a pipeline that home does not know."""
    claim = _driver(databases).home.claim
    foreign = ["order-17", f"tallyweir:{'f' * 12}:1:1:00000000:1:billing.0:1"]
    unknown = f"tallyweir:{claim.installation}:999:1:00000000:1:billing.0:1"
    for gid in (*foreign, unknown):
        execute(databases["billing"], f"BEGIN; SELECT 1; PREPARE TRANSACTION '{gid}'")
    for gid in (*foreign, unknown):
        for action in ("commit", "rollback"):
            code, _, err = command_line.run("indoubt", action, gid)
            assert (78, "INDOUBT_FOREIGN") == (code, err.splitlines()[0])
    assert sorted([*foreign, unknown]) == prepared(databases["billing"])
    (told,) = json.loads(command_line.run("indoubt", "list", "--json")[1])["branches"]
    assert (unknown, "leave", None) == (
        told["gid"],
        told["verdict"],
        told["pipeline"],
    )


def test_a_database_that_does_not_answer_hides_no_other(
    databases: dict[str, str], command_line: CommandLine
) -> None:
    """The list says so and ends with the exit code of an outage."""
    die_publishing(
        _driver(databases), 0, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    gid = _only_branch(databases)
    away = make_conninfo(databases["billing"], port="1")
    terminal = CommandLine(
        monkeypatch=command_line.monkeypatch,
        capsys=command_line.capsys,
        databases={**databases, "archive": away},
    )
    code, out, err = terminal.run("indoubt", "list")
    assert 75 == code
    assert gid in out
    assert "archive could not be checked: POSTGRES_UNREACHABLE" in err
    terminal = CommandLine(
        monkeypatch=command_line.monkeypatch,
        capsys=command_line.capsys,
        databases={HOME: databases[HOME]},
    )
    code, _, err = terminal.run("indoubt", "commit", gid)
    assert (78, "DATABASE_UNKNOWN") == (code, err.splitlines()[0])
