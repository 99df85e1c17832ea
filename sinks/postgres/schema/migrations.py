"""Brings a database's schema to this version, once, whichever process starts first.

The owner of the schema migrates it: by ``tallyweir migrate``, or, if one role does
everything, by the start of any process. A process whose role owns nothing only checks
whether that was done.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from urllib.parse import urlencode

from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from yoyo import get_backend, read_migrations

from tallyweir.sinks.postgres.server.connection import connect, pin
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.schema", "migrations.sql")

#: An arbitrary number; it must be the same for every Tallyweir.
_ADVISORY_LOCK = 7_255_946_011


def migrate(dsn: str) -> tuple[str, ...]:
    """Apply the home database's missing migrations; see ``_apply``."""
    return _apply(dsn, schema="tallyweir", folder="migrations")


def migrate_participant(dsn: str) -> tuple[str, ...]:
    """Apply the migrations of a database that holds branches; see ``_apply``."""
    return _apply(dsn, schema="tallyweir_participant", folder="participant_migrations")


def _apply(dsn: str, *, schema: str, folder: str) -> tuple[str, ...]:
    """Apply the missing migrations of one folder to the schema that they fill.

    If no migration is missing, nothing is locked or changed, and the role need only be
    able to read the list of migrations. Drivers, services and tests may all call this
    at the same time: a Postgres advisory lock lets one work and the others wait. Yoyo's
    own lock is a table row, which a killed process leaves behind. So it is broken under
    the advisory lock, when no live process can hold it.

    Returns:
        Names of the migrations that were applied, in order.

    Raises:
        ConfigurationError: The login was refused; or ``MIGRATION_NEEDED``: a migration
            is missing and the role may not apply it; or ``DATABASE_ENCODING``: see
            ``check_encoding``.
        RetryableError: The server cannot be reached.

    Crash:
        Each migration is one transaction; the next caller continues.
    """
    path = resources.files("tallyweir.sinks.postgres.schema").joinpath("sql", folder)
    known = [
        entry.name.removesuffix(".sql")
        for entry in path.iterdir()
        if entry.name.endswith(".sql")
    ]
    with connect(dsn, application_name="tallyweir migrations") as guard:
        with translated("looking for migrations"):
            missing = sorted(set(known) - _read_applied(guard, schema))
            if not missing:
                return ()
            check_encoding(guard)
            _check_may_migrate(guard, schema, missing)
        with translated("waiting for other migrations"):
            guard.execute("SELECT pg_advisory_lock(%s)", (_ADVISORY_LOCK,))
            # Yoyo keeps its own tables in our schema, which must exist first.
            guard.execute(
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))
            )
            guard.commit()
        with translated("applying migrations"):
            backend = get_backend(_yoyo_url(dsn, schema))
            try:
                pin(backend.connection)
                backend.init_connection(backend.connection)
                backend.break_lock()
                pending = backend.to_apply(read_migrations(str(path)))
                backend.apply_migrations(pending)
            finally:
                backend.connection.close()
    return tuple(migration.id for migration in pending)


@cache
def ledger_names() -> frozenset[str]:
    """Name the tables and views that migrations make in the ledger's schema."""
    folder = resources.files("tallyweir.sinks.postgres.schema").joinpath(
        "sql", "migrations"
    )
    made = re.compile(r"(?:TABLE|VIEW) (?:IF NOT EXISTS )?tallyweir\.(\w+)")
    return frozenset(
        name
        for migration in folder.iterdir()
        for name in made.findall(migration.read_text("utf-8"))
    )


def check_encoding(connection: Connection[TupleRow]) -> str:
    """Return a database's encoding.

    Raises:
        ConfigurationError: ``DATABASE_ENCODING``: it is not UTF-8.
    """
    encoding = connection.info.parameter_status("server_encoding") or "unknown"
    if encoding != "UTF8":
        name = connection.info.dbname
        raise ConfigurationError(
            "DATABASE_ENCODING",
            saw=f"Database {name} has the encoding {encoding}.",
            why="Events may contain any Unicode character, and the database would "
            "refuse each row that it cannot encode.",
            fix="Recreate it in UTF-8: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE "
            "template0.",
        )
    return encoding


def _read_applied(connection: Connection[TupleRow], schema: str) -> set[str]:
    """Name the migrations that a database has; empty if it has none."""
    table = f"{schema}._yoyo_migration"
    row = fetch_row(connection, _SQL["table_exists"], {"table": table})
    if not row[0]:
        return set()
    statement = _SQL["applied"].format(
        migrations=sql.Identifier(schema, "_yoyo_migration")
    )
    return {name for (name,) in connection.execute(statement)}


def _check_may_migrate(
    connection: Connection[TupleRow], schema: str, missing: list[str]
) -> None:
    role, database, may_migrate = fetch_row(
        connection, _SQL["may_migrate"], {"schema": schema}
    )
    if not may_migrate:
        raise ConfigurationError(
            "MIGRATION_NEEDED",
            saw=f"Schema {schema} of database {database} lacks {', '.join(missing)}, "
            f"and role {role} may not change it.",
            why="This version needs what these migrations create or change.",
            fix="Run tallyweir migrate --roles with the connection strings of the "
            "schema's owner, then run this again.",
        )


def _yoyo_url(dsn: str, schema: str) -> str:
    """Spell a DSN as the URL that yoyo wants: every libpq parameter as an argument."""
    parameters = {
        name: str(value)
        for name, value in conninfo_to_dict(dsn).items()
        if value is not None
    }
    return "postgresql+psycopg:///?" + urlencode(
        {**parameters, "client_encoding": "UTF8", "schema": schema}
    )
