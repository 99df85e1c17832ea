"""Connections to Postgres: opened with pinned settings, and opened again or kept.

``connect`` opens every connection of the product. A ``DatabaseLink`` opens one when it
is needed, and again after a failure; a ``KeptConnection`` keeps one for the next task
or batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.naming import application_name
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import Epoch

_PIN = load_statements("tallyweir.sinks.postgres.server", "session.sql")["pin"]

#: Seconds until an unreachable server is reported.
CONNECT_TIMEOUT_S = 10
#: Seconds that a server may leave what was sent to it unacknowledged.
SILENCE_MAX_S = 30


def connect(
    dsn: str,
    *,
    application_name: str,
    statement_max_s: float | None = None,
    connect_timeout_s: int = CONNECT_TIMEOUT_S,
    autocommit: bool = False,
) -> Connection[TupleRow]:
    """Open a connection whose session has the same settings everywhere.

    Every process connects here. The session has the settings of ``sql/session.sql``,
    whatever the role, the database, a service file, the PG* variables or the DSN set.
    So a value is stored and read unchanged, and a table without a schema is in
    ``public``.

    Args:
        dsn: The database; empty for libpq's defaults, that is, the PG* variables.
        application_name: The client's name in ``pg_stat_activity``.
        statement_max_s: The server ends a statement that takes longer; None for no
            limit.
        connect_timeout_s: Seconds until an unreachable server is reported.
        autocommit: Whether each statement is a transaction; otherwise transactions
            are begun and ended explicitly.

    Raises:
        ConfigurationError: The connection string is malformed, the login was refused,
            the database does not exist, or ``POSTGRES_SETTING``: the server refuses a
            setting, or this role may not set it.
        RetryableError: The server cannot be reached.
    """
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            "POSTGRES_DSN_MALFORMED",
            saw="TALLYWEIR_HOME_DSN is not a libpq connection string.",
            why="The pipeline does not know where its home database is.",
            fix="Write key=value pairs or a URI: postgresql://user@host:port/database.",
        ) from error
    with translated("connecting"):
        connection = psycopg.connect(
            dsn,
            application_name=application_name,
            connect_timeout=connect_timeout_s,
            # PGCLIENTENCODING may name an encoding that does not exist.
            client_encoding="UTF8",
            # A dead peer is noticed in about half a minute. By default it takes two
            # hours while waiting for an answer, and a quarter of an hour after sending
            # a request, during which no keepalives are sent.
            keepalives_idle=15,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=SILENCE_MAX_S * 1_000,
            # A setting that is pinned in a transaction is lost with its rollback.
            autocommit=True,
        )
        try:
            pin(connection, statement_max_s=statement_max_s)
            connection.autocommit = autocommit
        except BaseException:
            connection.close()
            raise
        return connection


def pin(
    connection: Connection[TupleRow], *, statement_max_s: float | None = None
) -> None:
    """Give a session the settings that every session of ours has.

    A statement sets them, because libpq sends PGTZ, PGDATESTYLE and similar variables
    after the connection's own options and would override these.

    Args:
        connection: Outside of a transaction.
        statement_max_s: As ``connect`` takes it.

    Raises:
        ConfigurationError: ``POSTGRES_SETTING``: a superuser has given this role or
            database a setting that this role may not change.
    """
    timeout = 0 if statement_max_s is None else statement_max_s * 1_000
    values = {"statement_timeout": f"{timeout:.0f}"}
    try:
        connection.execute(_PIN, values)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            "POSTGRES_SETTING",
            saw=f"Postgres answered: {error.diag.message_primary}.",
            why="The setting's value skips triggers or ignores damaged pages, and "
            "this role may not reset it.",
            fix="Ask a superuser to reset it with ALTER DATABASE ... RESET, ALTER "
            "ROLE ... RESET, or in postgresql.conf.",
        ) from error


@contextmanager
def standbys_waited_for(connection: Connection[TupleRow]) -> Iterator[None]:
    """Fail when Postgres did not wait for its synchronous standbys in the block.

    If the wait is cancelled, the statement ends with success and a warning: the
    transaction is committed here, but a failover may undo it. Statements that end a
    transaction raise no other warning; if they did, the caller would only ask again.

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
    """Roll a transaction back that the server may have ended already.

    If even that fails, the connection is closed, so that it is not used again.
    """
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()


_T = TypeVar("_T")


class DatabaseLink:
    """Runs one transaction at a time; only one thread may use it at a time.

    Args:
        dsn: libpq connection string.
        application_name: Name in ``pg_stat_activity``.
    """

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._dsn = dsn
        self.application_name = application_name
        self._connection: psycopg.Connection[TupleRow] | None = None

    def run(self, doing: str, work: Callable[[psycopg.Connection[TupleRow]], _T]) -> _T:
        """Run one transaction; a failure closes the connection and is translated.

        Raises:
            TallyweirError: As ``translate`` finds.
        """
        with translated(doing):
            connection = self.connected()
            try:
                result = work(connection)
                with standbys_waited_for(connection):
                    connection.commit()
            except BaseException:
                self.close()
                raise
            return result

    def connected(self) -> psycopg.Connection[TupleRow]:
        """Return the open connection; open one if there is none or it broke.

        Raises:
            TallyweirError: As ``connect`` does.
        """
        if self._connection is None or self._connection.closed:
            self._connection = connect(
                self._dsn, application_name=self.application_name
            )
        return self._connection

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


PostgresConnection: TypeAlias = psycopg.Connection[TupleRow]


class KeptConnection:
    """One connection of a process, kept over tasks and batches.

    Opening one costs more than staging a small batch.
    """

    def __init__(self) -> None:
        self._kept: PostgresConnection | None = None
        self._opened_for: tuple[str, int, int] | None = None

    def get(
        self, dsn: str, *, pipeline_number: int, epoch: Epoch
    ) -> PostgresConnection:
        """Return a usable connection; open one if the kept one is broken or unfit."""
        wanted = (dsn, pipeline_number, int(epoch))
        if self._kept is not None and (
            self._kept.closed or self._kept.broken or self._opened_for != wanted
        ):
            self.close()
        if self._kept is None:
            self._kept = connect(
                dsn, application_name=application_name(pipeline_number, epoch)
            )
            self._opened_for = wanted
        else:
            self._kept.rollback()
        return self._kept

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
