"""A scratch database, in which the product's own code commits for real.

Its use leaves no trace: it is dropped when it is closed. If a process is killed, the
process that makes the next scratch database drops it.
"""

from __future__ import annotations

import secrets
from typing import Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.schema", "scratch_database.sql")

_NAME = "tallyweir scratch"


class ScratchDatabase:
    """A scratch database; a context manager that drops it at the end.

    Args:
        server_dsn: A database of a server on which the role may create databases.

    Raises:
        ConfigurationError: ``SCRATCH_NOT_ALLOWED``, or the login was refused.
        RetryableError: The server is unreachable.

    Crash:
        The database stays, without connections; the next scratch database on the server
        drops it when it is made.
    """

    def __init__(self, server_dsn: str) -> None:
        self._server_dsn = server_dsn
        self.name = f"tallyweir_scratch_{secrets.token_hex(6)}"
        self.dsn = make_conninfo(server_dsn, dbname=self.name)
        self._server = connect(server_dsn, application_name=_NAME)
        try:
            with translated("creating a scratch database"):
                self._server.autocommit = True
                self._drop_left()
                self._create()
            # This connection keeps other processes from taking it for abandoned.
            self._user = connect(self.dsn, application_name=_NAME)
        except BaseException:
            self._server.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End its connections and drop it; further calls do nothing."""
        if self._server.closed:
            return
        self._user.close()
        with translated("dropping a scratch database"):
            for (gid,) in self._server.execute(_SQL["prepared"], {"name": self.name}):
                self._roll_back_prepared(gid)
            self._execute("drop_used")
        self._server.close()

    def _create(self) -> None:
        try:
            self._execute("create")
        except psycopg.errors.InsufficientPrivilege as error:
            role = self._server.info.user
            raise ConfigurationError(
                "SCRATCH_NOT_ALLOWED",
                saw=(
                    f"Role {role} may not create databases on {self._server.info.host}."
                ),
                why="This command works in a database that it drops afterwards.",
                fix=f"As a superuser: ALTER ROLE {role} CREATEDB; or set "
                "TALLYWEIR_SCRATCH_DSN to a server and a role that may.",
            ) from error

    def _execute(self, statement: str) -> None:
        named = _SQL[statement].format(name=sql.Identifier(self.name))
        self._server.execute(named)

    def _roll_back_prepared(self, gid: str) -> None:
        # Postgres drops no database that holds a prepared transaction.
        with connect(self.dsn, application_name=_NAME) as inside:
            inside.autocommit = True
            statement = _SQL["roll_back_prepared"].format(gid=sql.Literal(gid))
            inside.execute(statement)

    def _drop_left(self) -> None:
        for (left,) in self._server.execute(_SQL["left"]).fetchall():
            try:
                named = _SQL["drop_unused"].format(name=sql.Identifier(left))
                self._server.execute(named)
            except (psycopg.errors.ObjectInUse, psycopg.errors.InvalidCatalogName):
                # Another process has just made it, or dropped it.
                continue
            except psycopg.errors.InsufficientPrivilege:
                # It belongs to another role, whose next scratch database drops it.
                continue


def set_watermark(dsn: str, pipeline: str, moment: str) -> None:
    """Let a pipeline of a scratch database begin where its watermark stands already.

    Args:
        dsn: The scratch database, a home whose pipeline has published nothing.
        pipeline: The pipeline's name.
        moment: The watermark, in ISO 8601.

    Raises:
        RetryableError: The server went away.
    """
    values = {"pipeline": pipeline, "watermark": moment}
    with (
        translated("setting a scratch pipeline's watermark"),
        connect(dsn, application_name=_NAME) as home,
    ):
        home.execute(_SQL["set_watermark"], values)
