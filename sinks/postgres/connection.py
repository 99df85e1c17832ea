"""Connections to the home database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from sinks.postgres.sqlstate import translated
from sinks.postgres.statements import load_statements
from sinks.protocol.errors import ConfigurationError

_OPTIONS = "-c timezone=UTC -c client_min_messages=warning -c search_path=public"

_SQL = load_statements("sinks.postgres", "claim.sql")

#: Seconds until an unreachable server is reported.
CONNECT_TIMEOUT_S = 10
#: Seconds that a server may leave what was sent to it unacknowledged.
SILENCE_MAX_S = 30


def connect(
    dsn: str, *, application_name: str, statement_max_s: float | None = None
) -> Connection[TupleRow]:
    """Open a connection whose transactions are begun and ended explicitly.

    An empty ``dsn`` means libpq's defaults, that is, the PG* variables. A table
    without a schema is in ``public``, whatever the role's search path says: a role
    named like a schema of ours would otherwise get its tables there.

    Args:
        dsn: Of the database.
        application_name: Who connects, for whoever looks at the server's sessions.
        statement_max_s: The server ends a statement that takes longer; None for as
            long as the role's settings allow.

    Raises:
        ConfigurationError: The connection string is malformed, the login was refused
            or the database does not exist.
        RetryableError: The server cannot be reached.
    """
    try:
        given_options = conninfo_to_dict(dsn).get("options") or ""
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            "POSTGRES_DSN_MALFORMED",
            saw="TALLYWEIR_HOME_DSN is not a libpq connection string.",
            why="The pipeline does not know where its home database is.",
            fix="Write key=value pairs or a URI: postgresql://user@host:port/database.",
        ) from error
    options = f"{given_options} {_OPTIONS}".strip()
    if statement_max_s is not None:
        options += f" -c statement_timeout={statement_max_s * 1_000:.0f}"
    with translated("connecting"):
        return psycopg.connect(
            dsn,
            application_name=application_name,
            connect_timeout=CONNECT_TIMEOUT_S,
            # A dead peer is noticed in about half a minute: instead of two hours when
            # an answer is waited for, and of a quarter of an hour when a request was
            # sent into the void, for which no keepalives are sent.
            keepalives_idle=15,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=SILENCE_MAX_S * 1_000,
            options=options,
        )


@contextmanager
def standbys_waited_for(connection: Connection[TupleRow]) -> Iterator[None]:
    """Fail when Postgres did not wait for its synchronous standbys in the block.

    A wait that someone cancels ends with success and a warning: the transaction is
    committed here, and a failover may take it back. Nothing else warns in the
    statements that end a transaction, and taking another warning for this one only
    makes the caller ask again.

    Raises:
        psycopg.OperationalError: As if the answer had been lost.
    """
    warnings: list[str] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            warnings.append(diagnostic.message_primary or "")

    connection.add_notice_handler(note)
    try:
        yield
    finally:
        connection.remove_notice_handler(note)
    if warnings:
        raise psycopg.OperationalError(f"in doubt on the standby: {warnings[0]}")


def abandon(connection: Connection[TupleRow]) -> None:
    """Roll a transaction back, which the server may have ended already.

    A connection that cannot even do that is closed, so that nobody uses it again.
    """
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()


def read_fingerprint_key(connection: Connection[TupleRow]) -> bytes:
    """Return the installation's secret for fingerprints, 16 bytes."""
    with translated("reading the installation's key"):
        row = connection.execute(_SQL["fingerprint_key"]).fetchone()
        connection.rollback()
    assert row is not None, "a migrated database has exactly one installation"
    return bytes(row[0])
