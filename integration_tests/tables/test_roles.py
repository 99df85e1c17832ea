"""Who may do what: every role, every kind of statement, on a real server.

The matrix is that of docs/security.md (``harness/role_matrix.py``). Statements are made
from it, run by a login of each role, and rolled back; a statement is allowed unless
Postgres refuses it for want of a privilege.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow
from structlog.testing import capture_logs

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.fresh_databases import prepared
from integration_tests.harness.role_matrix import HOME_MATRIX, PARTICIPANT_MATRIX
from integration_tests.harness.role_world import (
    OWNER,
    STRANGER,
    RoleWorld,
    role_world,
)
from integration_tests.harness.sharded_numbers import Places, start_driver, stop
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.resolver.rounds import ResolverRound
from tallyweir.sinks.postgres.schema.migrations import migrate, migrate_participant
from tallyweir.sinks.postgres.schema.roles import (
    ALERTS,
    MONITOR,
    PUBLISHER,
    READER,
    RELAY,
    ROLES,
    grant_roles,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.errors import ConfigurationError

_LETTERS = {"P": PUBLISHER, "R": RELAY, "V": READER, "M": MONITOR, "A": ALERTS}


#: Other statements, and who may do them in the home.
_OTHERS: dict[str, str] = {
    "CREATE SCHEMA tallyweir_stage_9_9": "P",
    "CREATE TABLE public.results (n integer)": "P",
    "CREATE TABLE tallyweir_state.window_state_9 (n integer)": "P",
    "CREATE TABLE tallyweir.mine (n integer)": "",
    "CREATE VIEW tallyweir.mine AS SELECT 1": "",
    "CREATE FUNCTION tallyweir.mine() RETURNS integer LANGUAGE sql RETURN 1": "",
    "SELECT tallyweir.create_pipeline_runs('numbers')": "P",
    "SELECT tallyweir.create_bucket(1, 7200)": "P",
    "SELECT tallyweir.drop_bucket(1, 7200)": "P",
    "SELECT tallyweir.name_bucket(1, 7200)": "",
    "SELECT pipeline FROM tallyweir.pipeline FOR NO KEY UPDATE": "P",
    "SELECT gid FROM pg_prepared_xacts": "PRVMA",
    "ALTER FUNCTION tallyweir.create_bucket(integer, bigint) SECURITY INVOKER": "",
    "ALTER SCHEMA tallyweir OWNER TO CURRENT_USER": "",
    "ALTER TABLE tallyweir.batch DISABLE TRIGGER ALL": "",
    "ALTER TABLE tallyweir.batch_partition DROP CONSTRAINT conservation": "",
    "SET session_replication_role = replica": "",
    "CREATE ROLE another": "",
    "COPY tallyweir.batch FROM PROGRAM 'true'": "",
}


@pytest.fixture(scope="module")
def world(server_dsn: str) -> Iterator[RoleWorld]:
    """A home with one pipeline, which a publisher has registered, and a second one."""
    with role_world(server_dsn) as made:
        dsns = made.dsns(PUBLISHER)
        stop(start_driver(dsns[HOME], dsns["billing"]))
        yield made


#: What is wrong with the values is found out after who may write them.
_AFTER_PRIVILEGES = (
    psycopg.errors.DataError,
    psycopg.errors.IntegrityError,
    psycopg.errors.NotSupportedError,
)


def _is_allowed(dsn: str, statement: str) -> bool:
    """Run a statement, and roll it back."""
    with psycopg.connect(dsn) as connection:
        return _is_allowed_to(connection, statement)


def _is_allowed_to(connection: psycopg.Connection[TupleRow], statement: str) -> bool:
    try:
        connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return False
    except _AFTER_PRIVILEGES:
        return True
    finally:
        connection.rollback()
    return True


def _columns(dsn: str, schema: str) -> dict[str, list[str]]:
    """The tables and views of a schema with their columns, but no partitions."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT relname::text, array_agg(attname::text ORDER BY attnum) "
            "FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
            "WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'v', 'p') "
            "AND NOT relispartition AND attnum > 0 AND NOT attisdropped GROUP BY 1",
            [schema],
        ).fetchall()
    return dict(rows)


def _statements(
    schema: str, matrix: dict[str, dict[str, str]], columns: dict[str, list[str]]
) -> dict[str, str]:
    """Every kind of statement on every table, and the letters of who may do it."""
    found: dict[str, str] = {}
    for table, rights in matrix.items():
        name = f"{schema}.{table}"
        restricted = [c for c in columns[table] if f"select {c}" in rights]
        plain = ", ".join(c for c in columns[table] if c not in restricted)
        found[f"SELECT {plain} FROM {name}"] = rights.get("select", "")
        for column in restricted:
            found[f"SELECT {column} FROM {name}"] = rights[f"select {column}"]
        for column in columns[table]:
            found[f"UPDATE {name} SET {column} = DEFAULT WHERE false"] = rights.get(
                f"update {column}", ""
            )
        found[f"INSERT INTO {name} DEFAULT VALUES"] = rights.get("insert", "")
        found[f"DELETE FROM {name} WHERE false"] = rights.get("delete", "")
        found[f"TRUNCATE {name} CASCADE"] = ""
        found[f"ALTER TABLE {name} RENAME TO other"] = ""
        found[f"DROP TABLE {name} CASCADE"] = ""
        found[f"CREATE RULE r AS ON UPDATE TO {name} DO INSTEAD NOTHING"] = ""
    return {
        statement.replace("DROP TABLE", "DROP VIEW") if is_view else statement: who
        for statement, who in found.items()
        for is_view in [any(f"{schema}.{v}" in statement for v in _VIEWS)]
        # Views are for reading; Postgres refuses the rest before it asks who it is.
        if not is_view or statement.startswith(("SELECT", "DROP", "ALTER"))
    }


_VIEWS = (
    *("conservation", "standing_from", "visible_through", "visible_offset"),
    *("put_aside", "second_chance", "no_result", "batch_usage"),
)


def _assert_matrix(
    world: RoleWorld, database: str, statements: dict[str, str], *, least: int
) -> None:
    assert len(statements) >= least, "the table makes all its statements"
    wrong = []
    for letter, role in _LETTERS.items():
        with psycopg.connect(world.dsn(role, database)) as connection:
            wrong += [
                f"{role}: {statement}: allowed is {not expected}"
                for statement, letters in statements.items()
                for expected in [letter in letters]
                if _is_allowed_to(connection, statement) != expected
            ]
    assert [] == wrong


def test_each_role_may_do_what_the_matrix_says_in_the_home(world: RoleWorld) -> None:
    """And nothing else; a table that the matrix lacks is a hole in it."""
    columns = _columns(world.dsn(OWNER), "tallyweir")
    assert set(HOME_MATRIX) == set(columns)
    statements = _statements("tallyweir", HOME_MATRIX, columns)
    _assert_matrix(world, HOME, statements, least=200)


def test_each_role_may_do_what_the_matrix_says_in_a_participant(
    world: RoleWorld,
) -> None:
    """Only markers are there, and only the publisher adds to them."""
    columns = _columns(world.dsn(OWNER, "billing"), "tallyweir_participant")
    assert set(PARTICIPANT_MATRIX) == set(columns)
    statements = _statements("tallyweir_participant", PARTICIPANT_MATRIX, columns)
    _assert_matrix(world, "billing", statements, least=40)


def test_no_role_may_make_or_change_what_belongs_to_the_owner(
    world: RoleWorld,
) -> None:
    """Schemas, functions, constraints, privileges and the server are the owner's."""
    _assert_matrix(world, HOME, _OTHERS, least=19)


def test_who_belongs_to_no_group_sees_nothing(world: RoleWorld) -> None:
    """Nothing is granted to PUBLIC."""
    for schema, database in (("tallyweir", HOME), ("tallyweir_participant", "billing")):
        for table in _columns(world.dsn(OWNER, database), schema):
            statement = f"SELECT 1 FROM {schema}.{table}"
            assert not _is_allowed(world.dsn(STRANGER, database), statement), statement


def test_no_role_is_more_than_a_role(world: RoleWorld) -> None:
    """None is a superuser, logs in, makes roles, or passes row security."""
    with psycopg.connect(world.server_dsn) as connection:
        rows = connection.execute(
            "SELECT rolname, rolsuper OR rolcreaterole OR rolcreatedb "
            "OR rolreplication OR rolbypassrls OR rolcanlogin FROM pg_roles "
            "WHERE rolname = ANY (%s)",
            [list(ROLES)],
        ).fetchall()
    assert {(role, False) for role in ROLES} == set(rows)


def test_a_second_grant_takes_back_what_was_too_much(world: RoleWorld) -> None:
    """So that a later version can grant less."""
    with psycopg.connect(world.dsn(OWNER)) as owner:
        owner.execute("GRANT DELETE ON tallyweir.batch TO tallyweir_publisher")
    assert _is_allowed(world.dsn(PUBLISHER), "DELETE FROM tallyweir.batch WHERE false")
    grant_roles(world.dsn(OWNER), HOME)
    refused = "DELETE FROM tallyweir.batch WHERE false"
    assert not _is_allowed(world.dsn(PUBLISHER), refused)


def test_what_one_publisher_prepared_another_role_may_not_finish(
    world: RoleWorld,
) -> None:
    """The resolver, being a publisher, may; that is why both have the same role."""
    dsns = world.dsns(PUBLISHER)
    with psycopg.connect(dsns[HOME]) as connection:
        places = Places(home=dsns[HOME], billing=dsns["billing"], connection=connection)
        places.kill_after_decision()
    (gid,) = prepared(dsns["billing"])
    with psycopg.connect(world.dsn(MONITOR, "billing"), autocommit=True) as monitor:
        statement = sql.SQL("COMMIT PREPARED {}").format(sql.Literal(gid))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            monitor.execute(statement)
    with capture_logs():
        report = ResolverRound(dsns, grace_s=0).run()
    assert ([gid], []) == ([str(one) for one in report.committed], report.failures)
    assert [] == prepared(dsns["billing"])


def test_a_driver_of_a_newer_version_asks_for_its_migrations(world: RoleWorld) -> None:
    """A publisher neither migrates nor hangs; it says who must do what."""
    with role_world(world.server_dsn, grant=False) as fresh:
        for step, database in (
            (migrate, HOME),
            (migrate_participant, "billing"),
        ):
            with pytest.raises(ConfigurationError) as raised:
                step(fresh.dsn(STRANGER, database))
            assert "MIGRATION_NEEDED" == raised.value.code
            assert "0001" in raised.value.saw


def test_the_command_migrates_every_database_and_grants_when_asked(
    world: RoleWorld,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And says what it did in each; a second time there is nothing to do."""
    with role_world(world.server_dsn, grant=False) as fresh:
        line = CommandLine(
            monkeypatch=monkeypatch, capsys=capsys, databases=fresh.dsns(OWNER)
        )
        code, out, told = line.run("migrate")
        assert (0, "") == (code, told)
        home, billing = out.splitlines()
        assert home.startswith("home: applied 0001_ledger, 0002_conservation_view, ")
        assert (
            "billing: applied 0001_marker, 0002_state_schema, 0003_row_digests, "
            "0004_table_owners, 0005_exact_values" == billing
        )
        code, out, told = line.run("migrate")
        assert (0, "home: up to date\nbilling: up to date\n", "") == (code, out, told)
        assert not _is_allowed(
            fresh.dsn(STRANGER), "SELECT 1 FROM tallyweir.conservation"
        )
    line = CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases=world.dsns(OWNER)
    )
    code, out, told = line.run("migrate", "--roles")
    assert (0, "") == (code, told)
    assert [
        "home: up to date; roles granted",
        "billing: up to date; roles granted",
    ] == out.splitlines()


def test_an_up_to_date_schema_is_neither_locked_nor_changed(world: RoleWorld) -> None:
    """Whoever holds the lock of the migrations keeps nobody from starting."""
    with psycopg.connect(world.dsn(OWNER)) as owner:
        owner.execute("SELECT pg_advisory_lock(7255946011)")
        assert () == migrate(world.dsn(PUBLISHER))
        assert () == migrate_participant(world.dsn(PUBLISHER, "billing"))


def test_an_owner_who_may_not_make_roles_is_told_the_statements(
    tmp_path: Path,
) -> None:
    """An administrator runs them, and the owner does the rest."""
    # Of its own, because the roles of another test may be on any other.
    server = EmbeddedPostgres(tmp_path / "server")
    server.start()
    try:
        with (
            role_world(server.dsn, grant=False) as fresh,
            psycopg.connect(server.dsn, autocommit=True) as admin,
        ):
            owner = sql.Identifier(fresh.logins[OWNER])
            admin.execute(sql.SQL("ALTER ROLE {} NOCREATEROLE").format(owner))
            migrate(fresh.dsn(OWNER))
            with pytest.raises(ConfigurationError) as raised:
                grant_roles(fresh.dsn(OWNER), HOME)
            assert "ROLES_MISSING" == raised.value.code
            statements = raised.value.fix.removeprefix("As an administrator: ")
            admin.execute(statements.encode())
            grant_roles(fresh.dsn(OWNER), HOME)
            with psycopg.connect(fresh.dsn(OWNER)) as connection:
                allowed = connection.execute(
                    "SELECT has_table_privilege('tallyweir_reader', "
                    "'tallyweir.batch', 'SELECT')"
                ).fetchone()
            assert (True,) == allowed
    finally:
        server.stop()
