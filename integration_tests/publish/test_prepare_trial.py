"""A row is tried in the user's table: prepared, rolled back, and nothing is left."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from integration_tests.harness.fresh_databases import fresh_database, prepared
from integration_tests.harness.postgres_driver import execute, query
from tallyweir.sinks.postgres.branches.preflight import try_tables
from tallyweir.sinks.postgres.tables.foreign_code import hold_table
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim

_CLAIM = EpochClaim(
    installation="0" * 12, pipeline_number=1, epoch=Epoch(3), nonce="00000000"
)
_COLUMNS = (
    "number bigint, kafka_topic text, kafka_partition integer, kafka_offset bigint"
)
_NOTIFY = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN PERFORM pg_notify('numbers', 'changed'); RETURN NEW; END$$
"""
_SWALLOW = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RETURN NULL; END$$
"""


@pytest.fixture
def billing_dsn(server_dsn: str) -> Iterator[str]:
    """A participant, fresh."""
    with fresh_database(server_dsn, "billing") as dsn:
        yield dsn


def _try(dsn: str, table: str = "numbers", *, is_updated: bool = False) -> str | None:
    """Try one table, and hold that nothing of it is left."""
    before = query(dsn, f"SELECT count(*) FROM {table}")
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            notes = try_tables("billing", connection, {table: is_updated}, _CLAIM)
    finally:
        assert before == query(dsn, f"SELECT count(*) FROM {table}")
        assert [] == prepared(dsn)
    return notes[0] if notes else None


def test_a_trigger_on_update_counts_where_rows_are_updated(billing_dsn: str) -> None:
    """Windows are inserted and updated; appended rows are not."""
    execute(
        billing_dsn,
        f"CREATE TABLE numbers ({_COLUMNS})",
        _NOTIFY,
        "CREATE TRIGGER tells AFTER UPDATE ON numbers "
        "FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    assert _try(billing_dsn) is None
    with pytest.raises(ConfigurationError) as raised:
        _try(billing_dsn, is_updated=True)
    assert "PREPARE_REFUSED" == raised.value.code


@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TABLE numbers (id serial PRIMARY KEY, number bigint UNIQUE)",
        "CREATE TABLE numbers (id int GENERATED ALWAYS AS IDENTITY, number bigint)",
        """
        CREATE TABLE numbers (number bigint, day timestamptz NOT NULL)
            PARTITION BY RANGE (day);
        CREATE TABLE numbers_all PARTITION OF numbers
            FOR VALUES FROM (MINVALUE) TO (MAXVALUE)
        """,
        """
        CREATE TABLE one (id bigint PRIMARY KEY);
        CREATE TABLE numbers (
            number bigint, of bigint REFERENCES one DEFERRABLE INITIALLY DEFERRED
        )
        """,
        """
        CREATE TYPE mood AS ENUM ('good', 'bad');
        CREATE DOMAIN code AS varchar(3) CHECK (VALUE <> '');
        CREATE TABLE numbers (
            a mood NOT NULL, b code NOT NULL, c uuid NOT NULL, d jsonb NOT NULL,
            e bytea NOT NULL, f int[] NOT NULL, g date NOT NULL, h inet NOT NULL,
            i interval NOT NULL, j int4range NOT NULL, k numeric(3, 2) NOT NULL,
            l char(2) NOT NULL, m boolean NOT NULL, n time NOT NULL, o real NOT NULL,
            p timestamp NOT NULL
        )
        """,
        """
        CREATE TABLE numbers (number bigint CHECK (number > 40000));
        INSERT INTO numbers VALUES (50000)
        """,
        """
        CREATE TABLE numbers (
            number bigint GENERATED ALWAYS AS (half * 2) STORED, half int
        )
        """,
    ],
    ids=[
        "serial and unique",
        "identity",
        "partitioned",
        "deferred foreign key",
        "every type",
        "copy of a row",
        "generated",
    ],
)
def test_a_table_that_can_take_part_passes(billing_dsn: str, statements: str) -> None:
    """A row was written and prepared, both as appended and as updated."""
    execute(billing_dsn, statements)
    assert _try(billing_dsn) is None
    assert _try(billing_dsn, is_updated=True) is None


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (
            "CREATE TABLE numbers (number bigint NOT NULL CHECK (number > 40000))",
            "check",
        ),
        (
            """
            CREATE TABLE one (id bigint PRIMARY KEY);
            CREATE TABLE numbers (
                number bigint NOT NULL REFERENCES one DEFERRABLE INITIALLY DEFERRED
            )
            """,
            "foreign key",
        ),
        (
            "CREATE TABLE numbers (number bigint);"
            + _SWALLOW
            + """;
            CREATE TRIGGER tells BEFORE INSERT ON numbers
                FOR EACH ROW EXECUTE FUNCTION tell()
            """,
            "took no row",
        ),
    ],
    ids=["check", "deferred foreign key", "trigger that swallows rows"],
)
def test_a_table_that_takes_no_row_of_ours_is_not_tried(
    billing_dsn: str, statements: str, why: str
) -> None:
    """That says nothing about the pipeline's rows, so it is a note and no refusal."""
    execute(billing_dsn, statements)
    note = _try(billing_dsn)
    assert note is not None
    assert note.startswith("numbers not tried: ")
    assert why in note


def test_a_role_needs_its_privileges_and_row_security_is_no_lack_of_them(
    billing_dsn: str, server_dsn: str
) -> None:
    """Policies refuse rows; a missing privilege refuses every batch."""
    role = f"clerk_{uuid.uuid4().hex[:12]}"
    execute(server_dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'clerk'")
    try:
        execute(billing_dsn, f"CREATE TABLE numbers ({_COLUMNS})")
        dsn = make_conninfo(billing_dsn, user=role, password="clerk")
        with (
            psycopg.connect(dsn, autocommit=True) as connection,
            pytest.raises(ConfigurationError) as raised,
        ):
            try_tables("billing", connection, {"numbers": False}, _CLAIM)
        assert "POSTGRES_PERMISSION" == raised.value.code
        assert f'GRANT INSERT ON "public"."numbers" TO "{role}";' == raised.value.fix
        execute(billing_dsn, raised.value.fix)
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert () == try_tables("billing", connection, {"numbers": False}, _CLAIM)
            (note,) = try_tables(
                "billing", connection, {"numbers": False}, _CLAIM, hold=hold_table
            )
        assert "this login may insert into it, but may not lock it" in note
        execute(
            billing_dsn,
            "ALTER TABLE numbers ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY few ON numbers USING (true) WITH CHECK (number > 40000)",
        )
        with psycopg.connect(dsn, autocommit=True) as connection:
            (note,) = try_tables("billing", connection, {"numbers": False}, _CLAIM)
        assert "row-level security policy" in note
        execute(billing_dsn, "DROP POLICY few ON numbers")
        execute(billing_dsn, "CREATE POLICY every ON numbers USING (true)")
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert () == try_tables("billing", connection, {"numbers": False}, _CLAIM)
    finally:
        execute(billing_dsn, f"DROP OWNED BY {role}")
        execute(server_dsn, f"DROP ROLE {role}")


def test_a_locked_table_keeps_nobody_waiting(billing_dsn: str) -> None:
    """The start goes on; the batch will wait for the lock, or say who has it."""
    execute(billing_dsn, f"CREATE TABLE numbers ({_COLUMNS})")
    with psycopg.connect(billing_dsn) as owner:
        owner.execute("LOCK TABLE numbers IN SHARE MODE")
        with psycopg.connect(billing_dsn, autocommit=True) as connection:
            (note,) = try_tables("billing", connection, {"numbers": False}, _CLAIM)
    assert "numbers not tried: another transaction has a lock on it" == note


def test_who_only_looks_runs_no_trigger_of_a_role_with_fewer_rights(
    billing_dsn: str,
) -> None:
    """A driver does: it writes to the table anyway."""
    execute(
        billing_dsn,
        f"CREATE TABLE numbers ({_COLUMNS})",
        "CREATE SEQUENCE theft",
        "CREATE FUNCTION steal() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN PERFORM nextval('theft'); RETURN NEW; END$$",
        "CREATE TRIGGER evil BEFORE INSERT ON numbers "
        "FOR EACH ROW EXECUTE FUNCTION steal()",
        "ALTER TABLE numbers OWNER TO pg_monitor",
    )
    with psycopg.connect(billing_dsn, autocommit=True) as connection:
        (note,) = try_tables(
            "billing", connection, {"numbers": False}, _CLAIM, hold=hold_table
        )
        assert "numbers not tried: public.numbers has trigger evil" == note
        assert [(False,)] == query(billing_dsn, "SELECT is_called FROM theft")
        assert () == try_tables("billing", connection, {"numbers": False}, _CLAIM)
        assert [(True,)] == query(billing_dsn, "SELECT is_called FROM theft")
