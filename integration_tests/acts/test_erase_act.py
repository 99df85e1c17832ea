"""An erasure is one act: all of it or nothing, and again after a restore."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow
from typer.testing import CliRunner

from integration_tests.harness.erasing import assert_verified, erase_events
from integration_tests.harness.killed_session import kill_at_each_statement
from integration_tests.harness.whole_database import places_of, read_database
from integration_tests.ledger_scenario import PIPELINE, TOPIC, LedgerScenario
from tallyweir.services.cli.app import build_app
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import read_samples
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

Connection = psycopg.Connection[TupleRow]


def test_a_dry_run_finds_what_the_act_does_and_changes_nothing(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Rows, IDs, positions, and even the number of the act."""
    assert scenario.sequence == 3
    before = read_database(home_dsn)
    tried = erase_events(connection, "0-2", "3-101", dry_run=True)
    assert before == read_database(home_dsn)
    assert tried == erase_events(connection, "0-2", "3-101")


def test_erasing_again_does_nothing_more(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Whoever did not hear the answer may ask again."""
    assert scenario.sequence == 3
    erase_events(connection, "0-2")
    again = erase_events(connection, "0-2")
    assert again.rows == {}
    assert_verified(connection)


def test_a_restored_backup_is_erased_again_by_the_receipt(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """The backup is older than the erasure, and knows of no tombstone."""
    assert scenario.sequence == 3
    connection.execute("CREATE TABLE kept AS TABLE departures")
    connection.execute("CREATE TABLE kept_twice AS TABLE tallyweir.duplicate_event")
    connection.commit()
    erase_events(connection, "0-2")
    receipt = steering.format_receipt(
        PIPELINE, steering.read_tombs(connection, PIPELINE)
    )
    assert "0-2" not in receipt
    connection.execute(
        "TRUNCATE departures, tallyweir.duplicate_event, tallyweir.erased_id, "
        "tallyweir.erased_row"
    )
    connection.execute("DELETE FROM tallyweir.act")
    connection.execute("INSERT INTO departures TABLE kept")
    connection.execute("INSERT INTO tallyweir.duplicate_event TABLE kept_twice")
    connection.execute("DROP TABLE kept, kept_twice")
    connection.commit()
    assert places_of(home_dsn, "0-2")

    tombs = steering.parse_receipt(PIPELINE, receipt)
    erasure = erase_events(connection, receipt=tombs)

    assert erasure.rows == {"departures": 1, "aside:duplicate_event": 1}
    assert not places_of(home_dsn, "0-2")
    assert tombs == steering.read_tombs(connection, PIPELINE)
    assert_verified(connection)


def test_what_cannot_be_erased_as_a_whole_is_not_erased_in_part(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Rows of other databases, and rows that a branch in doubt would bring up."""
    assert scenario.sequence == 3
    connection.execute(
        "INSERT INTO tallyweir.batch_branch VALUES (%s, 3, 'home.0', 'gid')",
        (PIPELINE,),
    )
    connection.commit()
    before = read_database(home_dsn)
    with pytest.raises(RetryableError, match="ERASE_IN_DOUBT"):
        erase_events(connection, "0-2")
    assert before == read_database(home_dsn)
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        """'{outputs,0,databases}', '["home", "billing"]')"""
    )
    connection.commit()
    with pytest.raises(ConfigurationError, match=r"ERASE_ELSEWHERE.*billing"):
        erase_events(connection, "0-2")
    with pytest.raises(ConfigurationError, match="ERASE_NOTHING_NAMED"):
        erase_events(connection)


def test_nothing_is_erased_while_a_snapshot_or_a_hot_key_would_keep_it(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Snapshots are for a person to drop; what was frequent is forgotten with it."""
    assert scenario.sequence == 3
    connection.execute(
        "INSERT INTO tallyweir.batch_measures VALUES "
        """(%s, 3, '{"slots": 2, "hot_keys": {"departures": {"0-2": 5}}}')""",
        (PIPELINE,),
    )
    connection.commit()
    steering.take_snapshot(connection, PIPELINE, "amid", reason="a test")
    connection.commit()
    with pytest.raises(ConfigurationError, match=r"ERASE_SNAPSHOT_KEPT.*amid"):
        erase_events(connection, "0-2")
    assert places_of(home_dsn, "0-2")
    steering.drop_snapshot(connection, PIPELINE, "amid")
    connection.commit()
    erase_events(connection, "0-2")
    assert not places_of(home_dsn, "0-2")
    (kept,) = connection.execute(
        "SELECT measures FROM tallyweir.batch_measures"
    ).fetchall()
    assert kept == ({"slots": 2},)


def test_an_erasure_forgets_the_rows_of_steps(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Whoever they are of: those of windows and functions have no position."""
    scenario.write_samples()
    assert read_samples(connection, PIPELINE).steps
    erase_events(connection, "3-101", dry_run=True)
    assert read_samples(connection, PIPELINE).steps
    erase_events(connection, "3-101")
    assert not read_samples(connection, PIPELINE).steps


def test_a_crash_at_any_statement_erases_nothing(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """The session is killed ahead of each statement in turn, and of the COMMIT."""
    assert scenario.sequence == 3
    assert (
        kill_at_each_statement(
            home_dsn, lambda home: erase_events(home, "0-2", "3-101")
        )
        > 20
    )
    assert not places_of(home_dsn, "3-101")
    assert_verified(connection)


def test_the_commands_erase_and_tell_where_the_records_still_are(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """With --dry-run they only say it; the receipt they print they take again."""
    assert scenario.sequence == 3
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)
    connection.commit()

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    asked = ("erase", PIPELINE, "--id", "0-2", "--reason", "request 4711")
    assert "Nothing was changed" in said(*asked, "--dry-run")
    assert places_of(home_dsn, "0-2")
    told = said(*asked)
    assert "1 row taken out of departures" in told
    assert "1 row blanked in duplicate_event" in told
    assert f"{TOPIC}[0] offset 2" in told
    assert not places_of(home_dsn, "0-2")
    why = said("why", PIPELINE, "0-2")
    assert "Erased in act" in why
    assert "request 4711" in said("erasures", PIPELINE)
    receipt = tmp_path / "erased.json"
    receipt.write_text(said("erasures", PIPELINE, "--json"))
    reason = ("--reason", "restored")
    assert "2 positions" in said("erase", PIPELINE, "--again", str(receipt), *reason)
    receipt.write_text("{}")
    with pytest.raises(ConfigurationError, match="ERASE_RECEIPT"):
        said("erase", PIPELINE, "--again", str(receipt), *reason)
    assert_verified(connection)
