"""A scratch database refuses what the pipeline's tables refuse, and leaves nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from integration_tests.harness.postgres_driver import query
from tallyweir.sinks.postgres.schema.scratch_database import ScratchDatabase
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.tables.table_definition import (
    create_defined_table,
    create_schemas,
    read_table_definitions,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

_TABLES = """
CREATE SCHEMA sales;
CREATE TYPE sales.mood AS ENUM ('good', 'it''s', '%s');
CREATE FUNCTION sales.is_fine(integer) RETURNS boolean LANGUAGE sql IMMUTABLE
    AS 'SELECT true';
CREATE FUNCTION sales.nothing() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN RETURN new; END';
CREATE TABLE sales.parent (id integer PRIMARY KEY);
CREATE TABLE sales.amounts (
    id bigserial PRIMARY KEY,
    amount integer NOT NULL DEFAULT 3 CHECK (amount > 0),
    doubled integer GENERATED ALWAYS AS (amount * 2) STORED,
    note jsonb DEFAULT '{"a": "%s"}',
    parent integer REFERENCES sales.parent,
    CHECK (sales.is_fine(amount))
);
CREATE UNIQUE INDEX ON sales.amounts (amount) WHERE amount > 5;
CREATE TRIGGER nothing BEFORE INSERT ON sales.amounts
    FOR EACH ROW EXECUTE FUNCTION sales.nothing();
CREATE SCHEMA "Types";
CREATE DOMAIN "Types".email AS text COLLATE "C" DEFAULT '%@x'
    CONSTRAINT "has @" CHECK (value LIKE '%@%');
CREATE DOMAIN "Types"."Moods" AS sales.mood[] NOT NULL CHECK (cardinality(value) < 3);
CREATE DOMAIN sales.fine AS integer CHECK (sales.is_fine(value));
CREATE TABLE sales.moods (
    mood sales.mood, mail "Types".email, moods "Types"."Moods", others sales.mood[]
);
CREATE TABLE sales.fines (fine sales.fine);
"""
_LEFT = "SELECT datname FROM pg_database WHERE datname LIKE 'tallyweir_scratch%'"


def test_a_table_made_elsewhere_refuses_the_same_rows(
    empty_dsn: str, server_dsn: str
) -> None:
    """What cannot be made there is named."""
    tables = ["sales.amounts", "sales.moods", "sales.fines", "sales.unknown"]
    with psycopg.connect(empty_dsn) as there:
        there.execute(_TABLES.encode())
        there.commit()
        amounts, moods, fines = read_table_definitions(there, tables)
    with (
        ScratchDatabase(server_dsn) as scratch,
        connect(scratch.dsn, application_name="test") as here,
    ):
        create_schemas(here, tables)
        foreign_key, trigger, constraint = create_defined_table(here, amounts)
        assert ("foreign key amounts_parent_fkey", "trigger nothing") == (
            foreign_key,
            trigger,
        )
        assert "amounts_amount_check1: function sales.is_fine" in constraint
        assert [] == create_defined_table(here, moods)
        domain, table = create_defined_table(here, fines)
        assert "type sales.fine: function sales.is_fine" in domain
        assert 'the table itself: type "sales.fine" does not exist' == table
        here.execute(
            "INSERT INTO sales.moods VALUES ('it''s', DEFAULT, '{%s,good}', '{}')"
        )
        assert [("it's", "%@x", ["%s", "good"])] == here.execute(
            "SELECT mood::text, mail, moods::text[] FROM sales.moods"
        ).fetchall()
        for values in (
            "('bad', 'a@b', '{}', NULL)",
            "('good', 'a', '{}', NULL)",
            "('good', 'a@b', NULL, NULL)",
            "('good', 'a@b', '{good,good,good}', NULL)",
        ):
            with (
                pytest.raises((psycopg.DataError, psycopg.IntegrityError)),
                here.transaction(),
            ):
                here.execute(f"INSERT INTO sales.moods VALUES {values}".encode())
        insert = "INSERT INTO sales.amounts (amount) VALUES (%s)"
        here.execute(insert, [6])
        here.commit()
        rows = here.execute("SELECT id, doubled, note FROM sales.amounts").fetchall()
        assert [(1, 12, {"a": "%s"})] == rows
        for refused in (None, 0, 6):
            with pytest.raises(psycopg.IntegrityError), here.transaction():
                here.execute(insert, [refused])


def test_a_scratch_database_is_dropped_with_all_that_is_in_it(server_dsn: str) -> None:
    """Also with connections and a prepared transaction; others are left alone."""
    with ScratchDatabase(server_dsn) as other:
        scratch = ScratchDatabase(server_dsn)
        with closing(connect(scratch.dsn, application_name="test")) as inside:
            inside.execute("CREATE TABLE t ()")
            inside.execute("PREPARE TRANSACTION 'left'")
            inside.execute("SELECT 1")
            scratch.close()
        assert [(other.name,)] == query(server_dsn, _LEFT)
    assert [] == query(server_dsn, _LEFT)


def test_what_a_killed_process_left_is_dropped_by_the_next(server_dsn: str) -> None:
    """Nobody is connected to it any more."""
    killed = ScratchDatabase(server_dsn)
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = %s",
            [killed.name],
        )
    with ScratchDatabase(server_dsn) as following:
        assert [(following.name,)] == query(server_dsn, _LEFT)
    killed.close()


@pytest.fixture
def plain_dsn(server_dsn: str) -> Iterator[str]:
    """A login that may do nothing of its own."""
    name, password = f"plain_{secrets.token_hex(6)}", secrets.token_hex(6)
    with psycopg.connect(server_dsn, autocommit=True) as server:
        role = sql.Identifier(name)
        made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        server.execute(made.format(role, sql.Literal(password)))
        yield make_conninfo(server_dsn, user=name, password=password)
        server.execute(sql.SQL("DROP ROLE {}").format(role))


def test_a_role_needs_the_right_to_make_databases_and_no_other(
    server_dsn: str, plain_dsn: str
) -> None:
    """Without it the error says how to get it; what others have left is theirs."""
    left = ScratchDatabase(server_dsn)
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = %s",
            [left.name],
        )
        with pytest.raises(ConfigurationError) as refused:
            ScratchDatabase(plain_dsn)
        assert "SCRATCH_NOT_ALLOWED" == refused.value.code
        role = str(conninfo_to_dict(plain_dsn)["user"])
        assert f"ALTER ROLE {role} CREATEDB" in refused.value.fix
        server.execute(sql.SQL("ALTER ROLE {} CREATEDB").format(sql.Identifier(role)))
    with ScratchDatabase(plain_dsn) as own:
        assert {(left.name,), (own.name,)} == set(query(server_dsn, _LEFT))
    left.close()
