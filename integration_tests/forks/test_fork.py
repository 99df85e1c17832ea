"""A fork goes on from where a pipeline stands, and the two can change places."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from typer.testing import CliRunner

from integration_tests.harness.forked_ledger import WINDOWS, add_windows, publish_as
from integration_tests.harness.killed_session import kill_at_each_statement
from integration_tests.harness.postgres_driver import query
from integration_tests.harness.whole_database import read_database
from integration_tests.ledger_scenario import (
    PIPELINE,
    LedgerScenario,
    failed,
    fake_fingerprint,
)
from tallyweir.schemas.pipeline import Append, Pipeline, Source
from tallyweir.services.cli.app import build_app
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import explain, verify
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.steering import ActRequest, Fork, OutputDiff, Switch
from tallyweir.sinks.postgres.steering.forked_rows import COPIED, NOT_COPIED
from tallyweir.sinks.postgres.tables.shadow_tables import (
    check_tables_kept,
    read_shadow_tables,
)
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.settings import HOME_DSN_VARIABLE
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.tables.scratch_home import read_result_tables

Connection = psycopg.Connection[TupleRow]

_NEW = "departures-2"
_SHADOW = "departures__departures_2"
_FORMER = "departures__departures"
_TOLD = "SELECT output_table FROM tallyweir.batch_output WHERE pipeline = %s"


@pytest.fixture
def scenario(connection: Connection, scenario: LedgerScenario) -> LedgerScenario:
    """The ledger's, with its window table."""
    add_windows(connection)
    return scenario


def _request(kind: str, of: str = PIPELINE, *, dry_run: bool = False) -> ActRequest:
    return ActRequest(pipeline=of, kind=kind, reason="v2", dry_run=dry_run)


def _fork(connection: Connection, *empty: str, dry_run: bool = False) -> Fork:
    connection.rollback()
    act = _request("fork", dry_run=dry_run)
    return steering.fork(connection, act, _NEW, empty=empty)


def _switch(
    connection: Connection,
    front: str = PIPELINE,
    shadowing: str = _NEW,
    *,
    dry_run: bool = False,
) -> Switch:
    connection.rollback()
    return steering.switch(
        connection, _request("switch", front, dry_run=dry_run), shadowing
    )


def _diff(connection: Connection) -> dict[str, OutputDiff]:
    connection.rollback()
    return {d.table: d for d in steering.diff(connection, PIPELINE, _NEW)}


def _assert_verified(connection: Connection) -> None:
    connection.rollback()
    for pipeline in (PIPELINE, _NEW):
        assert {} == failed(verify(connection, pipeline)), pipeline


def test_a_fork_is_the_pipeline_as_it_stands_in_tables_of_its_own(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Both add up, know every event, and what one publishes is not the other's."""
    assert scenario.sequence == 3
    made = _fork(connection)
    windows = f"{WINDOWS}__departures_2"
    assert made.shadows == {"departures": _SHADOW, WINDOWS: windows}
    assert made.rows[_SHADOW] == 15
    assert made.last_sequence == 3
    _assert_verified(connection)
    explained = explain(connection, _NEW, "0-2", fake_fingerprint)
    assert [s.output for s in explained.sightings] == [_SHADOW, None]
    assert explained.catalog_hits
    connection.rollback()
    assert all(one.is_equal for one in _diff(connection).values())
    # The letters that it was made with are the other's to relay.
    relayed = "SELECT messages FROM tallyweir.relay_cursor WHERE pipeline = %s"
    assert connection.execute(relayed, (_NEW,)).fetchall() == [(2,)]

    publish_as(connection, PIPELINE)
    _assert_verified(connection)
    publish_as(connection, _NEW)
    publish_as(connection, _NEW)
    _assert_verified(connection)


def test_the_tables_of_a_fork_are_defined_as_its_shadows_are(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Under the names of its file, in which those are tables of the other."""
    assert scenario.sequence == 3
    _fork(connection)
    connection.execute(f"ALTER TABLE {_SHADOW} ADD COLUMN only_here text")
    connection.commit()
    environment = {"TALLYWEIR_KAFKA_BOOTSTRAP": "none:1", HOME_DSN_VARIABLE: home_dsn}
    settings = DriverSettings.from_environment(environment, {})
    source = Source(
        topic="departures",
        schema="departure.v1",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    )
    pipeline = Pipeline(name=_NEW, source=source, outputs=(Append(table="departures"),))
    (defined,) = read_result_tables(settings, pipeline)[HOME]
    assert defined.table == "departures"
    assert "only_here" in dict(defined.columns)


def test_each_table_of_ours_is_copied_or_said_not_to_be(home_dsn: str) -> None:
    """A table that somebody adds would be missing from every fork."""
    ours = query(
        home_dsn,
        "SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
        "WHERE relnamespace = 'tallyweir'::regnamespace AND attname = 'pipeline' "
        "AND relkind IN ('r', 'p') AND NOT relispartition",
    )
    assert sorted(name for (name,) in ours) == sorted((*COPIED, *NOT_COPIED))


def test_the_pipeline_is_not_touched_by_a_fork(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Nobody is fenced, and every row of its own is what it was."""
    assert scenario.sequence == 3
    before = read_database(home_dsn)
    _fork(connection)
    after = read_database(home_dsn)
    lost = {t: set(rows) - set(after[t]) for t, rows in before.items()}
    assert not any(lost.values())
    new = {
        row
        for table, rows in after.items()
        for row in set(rows) - set(before.get(table, ()))
        if row.startswith(f"({PIPELINE},")
    }
    assert not new


def test_what_is_published_during_a_fork_is_not_in_it(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """One snapshot of everything, and no lock that a publish waits for."""
    assert scenario.sequence == 3

    def publish(*_: object) -> None:
        with psycopg.connect(home_dsn, options="-c lock_timeout=1s") as beside:
            beside.execute("SET search_path = public")
            publish_as(beside, PIPELINE)

    class Publishing(psycopg.Cursor[TupleRow]):
        def execute(self, query: Any, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
            result = super().execute(query, *rest, **more)
            text = query.as_string(None) if hasattr(query, "as_string") else str(query)
            if "CREATE TABLE" in text and _SHADOW in text:
                publish()
            return result

    connection.rollback()
    with psycopg.connect(home_dsn, cursor_factory=Publishing) as forking:
        made = _fork(forking)
    assert made.last_sequence == 3
    assert made.rows[_SHADOW] == 15
    _assert_verified(connection)


def test_an_output_that_is_defined_otherwise_begins_empty(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """What came before owes it nothing; the others are what they were."""
    made = _fork(connection, "departures")
    assert scenario.sequence == 3
    assert list(made.rows) == [f"{WINDOWS}__departures_2"]
    told = connection.execute(_TOLD, (_NEW,))
    assert {table for (table,) in told} == made.rows.keys()
    connection.execute(f"CREATE TABLE {_SHADOW} (LIKE departures)".encode())
    connection.commit()
    _assert_verified(connection)


def test_a_diff_tells_rows_that_differ_or_are_on_one_side(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Only among what both have read, and windows that both have settled."""
    assert scenario.sequence == 3
    _fork(connection)
    publish_as(connection, _NEW)
    windows = f"{WINDOWS}__departures_2"
    for statement in (
        f"UPDATE {_SHADOW} SET event_id = 'else' WHERE event_id = '0-1'",
        f"DELETE FROM {_SHADOW} WHERE event_id = '0-2'",
        f"INSERT INTO {_SHADOW} VALUES ('more', now(), 'orders', 0, 3)",
        f"UPDATE {windows} SET flights = flights + 1",
        f"ALTER TABLE {windows} ADD COLUMN late bigint",
    ):
        connection.execute(statement.encode())
    connection.commit()
    found = _diff(connection)
    rows = found["departures"]
    assert (rows.equal, rows.different) == (13, 1)
    assert (rows.only_front, rows.only_shadow) == (1, 1)
    assert [sample["key"]["kafka_offset"] for sample in rows.samples] == [1, 2, 3]
    assert '"0-1"' in rows.samples[0]["front"]
    assert '"else"' in rows.samples[0]["shadow"]
    # Of four windows two are final, and the watermark has passed these.
    assert (found[WINDOWS].equal, found[WINDOWS].different) == (0, 2)
    assert "late" in found[WINDOWS].note
    publish_as(connection, PIPELINE)
    # Its ID tells whose it is.
    assert _diff(connection)["departures"].different == 2


def test_a_switch_shows_readers_the_forks_rows_and_back(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Both go on under their own names, add up, and can change places again."""
    assert scenario.sequence == 3
    connection.execute("CREATE ROLE fork_reader")
    try:
        connection.execute("GRANT SELECT ON departures TO fork_reader")
        connection.commit()
        _fork(connection)
        publish_as(connection, _NEW)
        before = read_database(home_dsn)
        tried = _switch(connection, dry_run=True)
        assert before == read_database(home_dsn)
        done = _switch(connection)
        assert tried == done
        assert set(done.tables) == {"departures", WINDOWS}
        assert done.former["departures"] == _FORMER
        readable = "SELECT has_table_privilege('fork_reader', 'departures', 'SELECT')"
        assert [(True,)] == query(home_dsn, readable)
        assert ["departures-2's 12"] == _newest(home_dsn, "departures")
        assert ["0-10"] == _newest(home_dsn, _FORMER)
        _assert_verified(connection)
        publish_as(connection, _NEW)
        publish_as(connection, PIPELINE)
        publish_as(connection, PIPELINE)
        _assert_verified(connection)
        assert ["departures's 13"] == _newest(home_dsn, _FORMER)
        _switch(connection, _NEW, PIPELINE)
        assert ["departures's 13"] == _newest(home_dsn, "departures")
        assert ["departures-2's 13"] == _newest(home_dsn, _SHADOW)
        _assert_verified(connection)
        assert {} == read_shadow_tables(connection, PIPELINE)
        publish_as(connection, PIPELINE)
        publish_as(connection, _NEW)
        _assert_verified(connection)
    finally:
        connection.rollback()
        connection.execute("DROP OWNED BY fork_reader")
        connection.execute("DROP ROLE fork_reader")
        connection.commit()


def _newest(dsn: str, table: str) -> list[str]:
    newest = f"SELECT event_id FROM {table} WHERE kafka_partition = 0 "
    return [r[0] for r in query(dsn, f"{newest} ORDER BY kafka_offset DESC LIMIT 1")]


def test_a_switch_waits_for_the_fork_to_have_read_as_far(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Readers would find less than they have seen."""
    assert scenario.sequence == 3
    _fork(connection)
    publish_as(connection, PIPELINE)
    before = read_database(home_dsn)
    with pytest.raises(RetryableError, match=r"SWITCH_BEHIND.*orders\[0\] by 1"):
        _switch(connection)
    assert before == read_database(home_dsn)
    steering.pause(connection, PIPELINE, reason="switching")
    publish_as(connection, _NEW)
    assert _switch(connection).tables
    _assert_verified(connection)


def test_a_driver_that_began_before_a_switch_does_not_write_after_it(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """It would write into the other's tables: its next start finds its own."""
    assert scenario.sequence == 3
    _fork(connection)
    known = {name: read_shadow_tables(connection, name) for name in (PIPELINE, _NEW)}
    for name, tables in known.items():
        check_tables_kept(connection, name, tables)
    _switch(connection)
    for name, tables in known.items():
        with pytest.raises(RetryableError, match="TABLES_SWITCHED"):
            check_tables_kept(connection, name, tables)


def test_a_reader_who_does_not_let_go_keeps_the_switch_from_happening(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Other readers would wait behind it."""
    assert scenario.sequence == 3
    _fork(connection)
    before = read_database(home_dsn)
    with psycopg.connect(home_dsn) as reader:
        reader.execute("SELECT FROM public.departures")
        with pytest.raises(RetryableError):
            _switch(connection)
    assert before == read_database(home_dsn)


@pytest.mark.parametrize(
    ("act", "every"),
    [
        (_switch, 3),
        pytest.param(_switch, 1, marks=pytest.mark.long),
        pytest.param(_fork, 1, marks=pytest.mark.long),
    ],
)
def test_a_crash_at_any_statement_changes_nothing(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    act: Callable[[Connection], object],
    every: int,
) -> None:
    """The session is killed ahead of each statement in turn, and of the COMMIT."""
    assert scenario.sequence == 3
    if act is _switch:
        _fork(connection)
    options = "-c search_path=public"
    assert kill_at_each_statement(home_dsn, act, options=options, every=every) > 30
    _assert_verified(connection)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("'{guarantee}', '\"at_least_once\"'", "writes at least once"),
        ("'{outputs,0,kind}', '\"outbox\"'", "sends messages"),
        ("'{outputs,0,databases}', '[\"billing\"]'", "other databases"),
        ("'{outputs,0,branches}', '2'", "in branches"),
        ("'{outputs,1,metrics}', '\"m\"'", "metrics"),
    ],
)
def test_a_pipeline_that_cannot_be_forked_is_told_why(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    change: str,
    reason: str,
) -> None:
    """Before anything is made."""
    assert scenario.sequence == 3
    connection.execute(
        f"UPDATE tallyweir.pipeline SET definition = "
        f"jsonb_set(definition, {change})".encode()
    )
    connection.commit()
    before = read_database(home_dsn)
    with pytest.raises(ConfigurationError, match=f"FORK_UNFIT.*{reason}"):
        _fork(connection)
    assert before == read_database(home_dsn)


def test_the_commands_fork_compare_and_switch(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dry run of each only says it; a diff that finds something ends with 1."""
    assert scenario.sequence == 3
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)

    def said(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    reason = ("--reason", "v2")
    asked = ("fork", PIPELINE, _NEW, *reason)
    assert "Nothing was changed" in said(*asked, "--dry-run")
    told = said(*asked)
    assert f"departures -> {_SHADOW}" in told
    with pytest.raises(ConfigurationError, match="FORK_NAME_TAKEN"):
        said(*asked)
    with pytest.raises(ConfigurationError, match=r"FORK_NAME\b"):
        said("fork", PIPELINE, "Departures 3", *reason)
    with pytest.raises(ConfigurationError, match="FORK_OUTPUT_UNKNOWN"):
        said("fork", PIPELINE, "departures-3", "--empty", "arrivals", *reason)
    assert "15 rows equal" in said("diff", PIPELINE, _NEW)
    connection.execute(f"DELETE FROM {_SHADOW} WHERE event_id = '0-2'".encode())
    connection.commit()
    assert "1 only in departures," in said("diff", PIPELINE, _NEW, code=1)
    shown = json.loads(said("diff", PIPELINE, _NEW, "--json", code=1))
    assert shown["outputs"][0]["only_front"] == 1
    with pytest.raises(ConfigurationError, match="SWITCH_NOT_SHADOWED"):
        said("switch", _NEW, PIPELINE, *reason)
    with pytest.raises(ConfigurationError, match="DIFF_NOT_SHADOWED"):
        said("diff", _NEW, PIPELINE)
    assert "Nothing was changed" in said("switch", PIPELINE, _NEW, *reason, "--dry-run")
    assert _FORMER in said("switch", PIPELINE, _NEW, *reason)
