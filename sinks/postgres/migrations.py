"""Brings a database's schema to this version, once, whoever starts first."""

from __future__ import annotations

from importlib import resources
from urllib.parse import urlencode

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from yoyo import get_backend, read_migrations

from sinks.postgres.connection import connect
from sinks.postgres.sqlstate import translated

#: Any number will do; it must only be the same for every Tallyweir.
_ADVISORY_LOCK = 7_255_946_011


def migrate(dsn: str) -> None:
    """Apply the home database's migrations that are missing; see ``_apply``."""
    _apply(dsn, schema="tallyweir", folder="migrations")


def migrate_participant(dsn: str) -> None:
    """Apply the migrations of a database that holds branches; see ``_apply``."""
    _apply(dsn, schema="tallyweir_participant", folder="participant_migrations")


def _apply(dsn: str, *, schema: str, folder: str) -> None:
    """Apply the missing migrations of one folder to the schema that they fill.

    Drivers, services and tests may all call this at the same time: a Postgres
    advisory lock lets one work and the others wait. Yoyo's own lock is a table row
    that a killed process leaves behind, so it is broken under the advisory lock,
    when nobody alive can hold it.

    Raises:
        ConfigurationError: The login was refused, or the role may not create the
            schema.
        RetryableError: The server cannot be reached.

    Crash:
        Each migration is one transaction; the next caller continues.
    """
    with connect(dsn, application_name="tallyweir migrations") as guard:
        with translated("waiting for other migrations"):
            guard.execute("SELECT pg_advisory_lock(%s)", (_ADVISORY_LOCK,))
            # Yoyo keeps its own tables in our schema, which must exist before.
            guard.execute(
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))
            )
            guard.commit()
        path = resources.files("sinks.postgres").joinpath("sql", folder)
        with translated("applying migrations"):
            backend = get_backend(_yoyo_url(dsn, schema))
            try:
                backend.break_lock()
                pending = backend.to_apply(read_migrations(str(path)))
                backend.apply_migrations(pending)
            finally:
                backend.connection.close()


def _yoyo_url(dsn: str, schema: str) -> str:
    """Spell a DSN as the URL that yoyo wants: every libpq parameter as an argument."""
    parameters = {
        name: str(value)
        for name, value in conninfo_to_dict(dsn).items()
        if value is not None
    }
    return "postgresql+psycopg:///?" + urlencode({**parameters, "schema": schema})
