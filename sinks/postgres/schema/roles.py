"""The group roles of Postgres, and what each of them may do.

Group roles have no login: an administrator grants them to logins, and each login works
under its group (``ALTER ROLE login SET role = group``). So all that it makes or
prepares belongs to the group: any publisher can commit what ``tallyweir_publisher`` has
prepared.
"""

from __future__ import annotations

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.schema", "roles.sql")

PUBLISHER = "tallyweir_publisher"
RELAY = "tallyweir_relay"
READER = "tallyweir_reader"
MONITOR = "tallyweir_monitor"
ALERTS = "tallyweir_alerts"

ROLES = (PUBLISHER, RELAY, READER, MONITOR, ALERTS)


def grant_roles(dsn: str, database: str) -> None:
    """Make the missing group roles, and grant each what it needs here.

    Excess privileges that an earlier version granted are revoked. Logins and the
    members of groups stay as they are.

    Args:
        dsn: A migrated database, as the owner of its schemas.
        database: Its name among the pipelines' databases.

    Raises:
        ConfigurationError: ``ROLES_MISSING``: roles are missing, and the owner may not
            make them. ``ROLES_NOT_GRANTED``: the owner may not grant all privileges.
        RetryableError: The server cannot be reached.

    Crash:
        One transaction: all is granted or nothing is changed.
    """
    # Roles belong to the server: a second database, or another process, finds them.
    with (
        connect(dsn, application_name="tallyweir roles") as connection,
        translated(f"granting roles in {database}"),
    ):
        _create_missing(connection)
        _join_publisher(connection)
        here = sql.Identifier(connection.info.dbname)
        try:
            connection.execute(_SQL["database"].format(database=here))
            connection.execute(_SQL["home" if database == HOME else "participant"])
        except psycopg.errors.InsufficientPrivilege as error:
            raise _not_granted(database, str(error.diag.message_primary)) from error
        missing = [row[0] for row in connection.execute(_SQL["not_granted"])]
        if missing:
            raise _not_granted(database, f"{' and '.join(missing)} failed")


def _create_missing(connection: Connection[TupleRow]) -> None:
    rows = connection.execute(_SQL["missing_roles"], {"roles": list(ROLES)})
    missing = [name for (name,) in rows]
    try:
        for name in missing:
            connection.execute(_SQL["create_role"].format(role=sql.Identifier(name)))
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            "ROLES_MISSING",
            saw=f"There is no role {', '.join(missing)}, and {connection.info.user} "
            "may not create roles.",
            why="This command grants privileges to these roles.",
            fix="As an administrator: "
            + " ".join(f"CREATE ROLE {name} NOLOGIN;" for name in missing)
            + f" GRANT {PUBLISHER} TO {connection.info.user};",
        ) from error


def _join_publisher(connection: Connection[TupleRow]) -> None:
    role, is_member = fetch_row(connection, _SQL["is_member"])
    if is_member:
        return
    try:
        connection.execute(_SQL["join_publisher"])
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            "ROLES_NOT_GRANTED",
            saw=f"{role} is not a member of {PUBLISHER}, and may not grant itself "
            "membership.",
            why="Membership lets the monitor read tables that publishers create later.",
            fix=f"As an administrator: GRANT {PUBLISHER} TO {role};",
        ) from error


def _not_granted(database: str, saw: str) -> ConfigurationError:
    return ConfigurationError(
        "ROLES_NOT_GRANTED",
        saw=f"In database {database}: {saw}.",
        why="A driver creates its staging schemas and its result tables itself.",
        fix="Run this as the owner of the database, or ask the owner to grant it.",
    )
