"""A pipeline that works in the shadow is discarded whole, or not at all."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow
from typer.testing import CliRunner

from integration_tests.harness.discarded_fork import (
    FORK,
    SHADOW,
    SHAPE,
    add_own_tables,
    discard,
    fill_tables,
    fork,
    request,
)
from integration_tests.harness.forked_ledger import publish_as
from integration_tests.harness.killed_session import kill_at_each_statement
from integration_tests.harness.postgres_driver import execute, query
from integration_tests.harness.whole_database import read_database
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario, failed
from tallyweir.services.cli.app import build_app
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.steering.discard import EMPTIED
from tallyweir.sinks.postgres.steering.forked_rows import COPIED, NOT_COPIED
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

Connection = psycopg.Connection[TupleRow]

_NOTE = "tallyweir.discarded_pipeline"
_REFERENCES = """
SELECT child.relname, parent.relname, confdeltype::text
FROM pg_constraint
JOIN pg_class AS child ON child.oid = conrelid
JOIN pg_class AS parent ON parent.oid = confrelid
WHERE contype = 'f' AND connamespace = 'tallyweir'::regnamespace
"""


@pytest.fixture
def scenario(connection: Connection, scenario: LedgerScenario) -> LedgerScenario:
    """The ledger's, with tables as a driver makes them."""
    add_own_tables(connection)
    return scenario


def _assert_verified(connection: Connection, pipeline: str) -> None:
    connection.rollback()
    assert {} == failed(verify(connection, pipeline))


def test_nothing_of_a_discarded_pipeline_is_left_but_the_note(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Every table of ours has rows of it before; then it is as if it never was."""
    assert scenario.sequence == 3
    before, shape = read_database(home_dsn), query(home_dsn, SHAPE)
    fork(connection)
    publish_as(connection, FORK)
    fill_tables(connection)
    for table in EMPTIED:
        rows = f"SELECT count(*) FROM tallyweir.{table} WHERE pipeline = %s"
        assert query(home_dsn, rows, FORK) != [(0,)], table
    filled = read_database(home_dsn)
    tried = discard(connection, dry_run=True)
    assert filled == read_database(home_dsn)
    done = discard(connection)
    assert tried == done
    after = read_database(home_dsn)
    (note,) = after.pop(_NOTE)
    assert before.pop(_NOTE) == []
    assert before == after
    assert shape == query(home_dsn, SHAPE)
    assert (done.front, done.batches, done.committed) == (PIPELINE, 4, 16)
    assert done.rows[SHADOW] == 16
    assert done.rows["tallyweir.batch"] == 4
    assert done.rows.keys() >= {f"tallyweir.{table}" for table in EMPTIED}
    assert done.bytes > 0
    # Of the letters, the other pipeline's are not its to send.
    assert done.unrelayed == 1
    assert "too fine" in note
    _assert_verified(connection, PIPELINE)


def test_our_tables_are_emptied_in_an_order_that_their_keys_allow(
    home_dsn: str,
) -> None:
    """Each is named once, and goes before those that it refers to, or with them."""
    assert sorted(EMPTIED) == sorted(
        {*COPIED, *NOT_COPIED} - {"seen_id_run", "discarded_pipeline"}
    )
    assert EMPTIED.index("relay_cursor") < EMPTIED.index("outbox")
    for child, parent, on_delete in query(home_dsn, _REFERENCES):
        if child not in EMPTIED:
            assert on_delete == "c", (child, parent)
        else:
            assert EMPTIED.index(child) <= EMPTIED.index(parent), (child, parent)


def test_after_a_switch_the_former_version_is_discarded(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Readers find what they did; a table that only it wrote is left to them."""
    assert scenario.sequence == 3
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        """'{outputs,2}', '{"kind": "append", "table": "by_day", "columns": null}')"""
    )
    connection.commit()
    fork(connection)
    connection.execute("CREATE TABLE by_day (LIKE departures)")
    connection.execute(
        "DELETE FROM tallyweir.shadow_table WHERE front_table = 'by_day'"
    )
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = definition #- '{outputs,2}' "
        "WHERE pipeline = %s",
        (FORK,),
    )
    connection.commit()
    connection.rollback()
    steering.switch(connection, request("switch"), FORK)
    shown = query(home_dsn, "SELECT event_id FROM departures ORDER BY 1")
    done = discard(connection, PIPELINE)
    assert done.left == ("by_day",)
    assert done.front == FORK
    assert shown == query(home_dsn, "SELECT event_id FROM departures ORDER BY 1")
    assert query(home_dsn, "SELECT count(*) FROM by_day") == [(0,)]
    for table in EMPTIED:
        rows = f"SELECT count(*) FROM tallyweir.{table} WHERE pipeline = %s"
        assert query(home_dsn, rows, PIPELINE) == [(0,)], table
    gone = "SELECT to_regclass('departures__departures')"
    assert query(home_dsn, gone) == [(None,)]
    _assert_verified(connection, FORK)


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        (
            "DISCARD_ELSEWHERE",
            (
                "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
                "'{outputs,0,databases}', '[\"billing\"]') "
                "WHERE pipeline = 'departures-2'"
            ),
        ),
        (
            "BATCH_IN_DOUBT",
            "INSERT INTO tallyweir.batch_branch VALUES ('departures-2', 1, 'b', 'gid')",
        ),
        (
            "DISCARD_DEPENDED_ON.*view public.shown",
            f"CREATE VIEW public.shown AS SELECT event_id FROM {SHADOW}",
        ),
    ],
)
def test_what_cannot_be_discarded_as_a_whole_is_not_discarded_in_part(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    code: str,
    statement: str,
) -> None:
    """Nothing is changed, and the error says what is in the way."""
    assert scenario.sequence == 3
    fork(connection)
    execute(home_dsn, statement)
    before = read_database(home_dsn)
    with pytest.raises((ConfigurationError, RetryableError), match=code):
        discard(connection)
    assert before == read_database(home_dsn)


def test_what_is_prepared_keeps_a_pipeline_from_being_discarded(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """It would belong to nobody, who would never finish it."""
    assert scenario.sequence == 3
    fork(connection)
    gid = query(
        home_dsn,
        "SELECT format('tallyweir:%%s:%%s:1:test', installation_id, pipeline_number) "
        "FROM tallyweir.pipeline CROSS JOIN tallyweir.installation "
        "WHERE pipeline = %s",
        FORK,
    )[0][0]
    with psycopg.connect(home_dsn, autocommit=True) as beside:
        beside.execute("BEGIN")
        beside.execute("CREATE TABLE prepared (n bigint)")
        beside.execute(f"PREPARE TRANSACTION '{gid}'".encode())
        with pytest.raises(RetryableError, match="BATCH_IN_DOUBT"):
            discard(connection)
        beside.execute(f"ROLLBACK PREPARED '{gid}'".encode())
    assert discard(connection).batches == 3


def test_the_pipeline_in_front_is_not_discarded(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Readers find its tables, whether or not it has a fork."""
    assert scenario.sequence == 3
    fork(connection)
    before = read_database(home_dsn)
    with pytest.raises(ConfigurationError, match="DISCARD_NOT_SHADOWED"):
        discard(connection, PIPELINE)
    with pytest.raises(ConfigurationError, match="PIPELINE_UNKNOWN"):
        discard(connection, "departures-3")
    assert before == read_database(home_dsn)


def test_a_reader_who_does_not_let_go_keeps_the_discard_from_happening(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Others would wait behind it; a look into the catalog holds up everybody."""
    assert scenario.sequence == 3
    fork(connection)
    before = read_database(home_dsn)
    for table in (SHADOW, "tallyweir.seen_id_run"):
        with psycopg.connect(home_dsn) as reader:
            reader.execute(f"SELECT FROM {table}".encode())
            with pytest.raises(RetryableError, match="POSTGRES_UNAVAILABLE"):
                discard(connection)
        assert before == read_database(home_dsn)


def test_a_crash_at_any_statement_changes_nothing(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """The session is killed ahead of each statement in turn, and of the COMMIT."""
    assert scenario.sequence == 3
    fork(connection)
    options = "-c search_path=public"
    assert kill_at_each_statement(home_dsn, discard, options=options) > 50
    _assert_verified(connection, PIPELINE)


def test_the_command_discards_and_every_other_tells_by_whom_and_why(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dry run says the same as the command, and changes nothing."""
    assert scenario.sequence == 3
    fork(connection)
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    asked = ("discard", FORK, "--reason", "too fine")
    with pytest.raises(ConfigurationError, match="REASON_MISSING"):
        said("discard", FORK, "--reason", " ")
    before = read_database(home_dsn)
    tried = said(*asked, "--dry-run")
    assert "Nothing was changed" in tried
    assert before == read_database(home_dsn)
    told = said(*asked)
    assert tried.splitlines()[:-1] == told.splitlines()[:-1]
    assert f"15 rows of {SHADOW}" in told
    assert "3 rows of tallyweir.batch\n" in told
    for command in (asked, ("status", FORK), ("versions", FORK), ("pause", *asked[1:])):
        with pytest.raises(ConfigurationError, match=r"PIPELINE_DISCARDED.*: too fine"):
            said(*command)
