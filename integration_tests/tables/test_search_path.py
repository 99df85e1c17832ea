"""A name without a schema means one table, and nobody's path leads to the ledger's."""

from __future__ import annotations

import psycopg
import pytest

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.branches.preflight import read_logins_in_ledger
from tallyweir.sinks.postgres.tables.lookup_table import read_lookup_table
from tallyweir.sinks.protocol.errors import ConfigurationError

_COLUMNS = (
    "number bigint CHECK (number > 0), kafka_topic text, kafka_partition integer, "
    "kafka_offset bigint"
)


def _start(dsn: str, table: str = "numbers") -> None:
    PostgresDriver(dsn=dsn, layout=layout_of(append_table(table, number="bigint")))


def _refused(dsn: str, table: str = "numbers") -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        _start(dsn, table)
    assert "TABLE_ELSEWHERE" == raised.value.code
    return raised.value


def test_a_table_that_was_made_in_the_ledgers_schema_is_not_passed_over(
    home_dsn: str,
) -> None:
    """As the login's search path made it; after the fix its constraints hold."""
    execute(home_dsn, f"CREATE TABLE tallyweir.numbers ({_COLUMNS})")
    error = _refused(home_dsn)
    assert "table tallyweir.numbers exists;" in error.saw
    assert "means public.numbers, which does not exist" in error.saw
    assert [(None,)] == query(home_dsn, "SELECT to_regclass('public.numbers')")
    assert "ALTER TABLE tallyweir.numbers SET SCHEMA public" in error.fix
    execute(home_dsn, "ALTER TABLE tallyweir.numbers SET SCHEMA public")
    _start(home_dsn)


def test_an_installation_that_has_both_is_told_at_its_next_start(home_dsn: str) -> None:
    """Also of a pipeline that has written its own for long."""
    _start(home_dsn)
    execute(home_dsn, f"CREATE TABLE tallyweir.numbers ({_COLUMNS})")
    assert "public.numbers, which exists too" in _refused(home_dsn).saw


def test_a_table_of_another_schema_is_meant_or_not(home_dsn: str) -> None:
    """The schema in the file decides; a table that is written already is the one."""
    execute(home_dsn, "CREATE SCHEMA app", f"CREATE TABLE app.numbers ({_COLUMNS})")
    assert "table app.numbers exists;" in _refused(home_dsn).saw
    _start(home_dsn, "app.numbers")
    execute(home_dsn, f"CREATE TABLE public.numbers ({_COLUMNS})")
    _start(home_dsn)


def test_a_table_that_a_login_finds_before_that_of_public_is_told(
    home_dsn: str,
) -> None:
    """By a setting of the database or the role."""
    execute(
        home_dsn,
        "CREATE SCHEMA app",
        f"CREATE TABLE app.numbers ({_COLUMNS})",
        f"CREATE TABLE public.numbers ({_COLUMNS})",
    )
    with psycopg.connect(home_dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET search_path = app, public')
        assert "table app.numbers exists;" in _refused(home_dsn).saw
        connection.execute(f'ALTER DATABASE "{name}" SET search_path = public, app')
    _start(home_dsn)


def test_names_of_the_ledgers_own_tables_are_free(home_dsn: str) -> None:
    """They are made by migrations, so nobody meant them."""
    for table in ("batch", "conservation", "receipt"):
        layout = layout_of(append_table(table, number="bigint"))
        PostgresDriver(dsn=home_dsn, layout=layout)


def test_a_lookup_table_is_not_taken_from_another_schema(home_dsn: str) -> None:
    """The copy would be of rows that whoever edits the other one does not see."""
    execute(home_dsn, "CREATE TABLE tallyweir.rates (code text)")
    with pytest.raises(ConfigurationError) as raised:
        read_lookup_table(home_dsn, "rates", {"code": "code"})
    assert "TABLE_ELSEWHERE" == raised.value.code
    assert "table tallyweir.rates exists;" in raised.value.saw


def test_a_login_whose_path_leads_to_the_ledger_is_named(home_dsn: str) -> None:
    """Until its search path is set; the embedded server's database has it so."""
    with psycopg.connect(home_dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" RESET search_path')
        assert ["tallyweir"] == read_logins_in_ledger(connection)
        connection.execute(f'ALTER DATABASE "{name}" SET search_path = public')
        assert [] == read_logins_in_ledger(connection)
        connection.execute(
            f'ALTER ROLE tallyweir IN DATABASE "{name}" '
            """SET search_path = public, tallyweir"""
        )
        assert ["tallyweir"] == read_logins_in_ledger(connection)


def test_the_line_that_up_prints_makes_tables_in_public(server_dsn: str) -> None:
    """Its role is called as the ledger's schema; its database sets the path."""
    assert [("public",)] == query(server_dsn, "SHOW search_path")
