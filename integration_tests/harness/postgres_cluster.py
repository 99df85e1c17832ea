"""Servers that are backed up, restored, copied, cut off, promoted and rewound.

What an operator does by hand with Postgres' own programs, so that drills do the same.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from integration_tests.harness.postgres_driver import execute, query
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres, server_binary
from tallyweir.services.local.embedded.unprivileged import unprivileged

_DEADLINE_S = 90.0
_POLL_S = 0.05


class ArchivedServer:
    """A server whose WAL is archived, with one base backup; for drills of restores.

    Args:
        directory: Of the test's own; holds data, archive and backup.
    """

    def __init__(self, directory: Path) -> None:
        self.server = EmbeddedPostgres(directory / "server")
        self._archive = directory / "archive"
        self._backup = directory / "backup"

    @property
    def dsn(self) -> str:
        return self.server.dsn

    def start(self) -> None:
        """Start the server with archiving on, which needs a restart of a new one."""
        self._archive.mkdir()
        self.server.start()
        execute(
            self.dsn,
            "ALTER SYSTEM SET archive_mode = on",
            f'ALTER SYSTEM SET archive_command = \'cp "%p" "{self._archive}/%f"\'',
        )
        self.server.stop()
        self.server.start()

    def take_backup(self) -> int:
        """Copy the running server; return the first place it can be restored to.

        The copy has no WAL of its own: to be of use it needs the archive.
        """
        _base_backup(self.server, self._backup, "-X", "none")
        return self.wal_position()

    def wal_position(self) -> int:
        """Return how many bytes of WAL the server has ever written."""
        ((position,),) = query(
            self.dsn, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
        )
        assert isinstance(position, int)
        return position

    def archive_everything(self) -> None:
        """Wait until all WAL that is written now is in the archive."""
        ((segment,),) = query(
            self.dsn, "SELECT pg_walfile_name(pg_current_wal_insert_lsn())"
        )
        execute(self.dsn, "SELECT pg_switch_wal()")
        await_row(
            self.dsn,
            f"SELECT last_archived_wal FROM pg_stat_archiver "
            f"WHERE last_archived_wal >= '{segment}'",
        )

    def restore_to_position(self, position: int) -> None:
        """Put the backup in the server's place and replay WAL up to a position."""
        lsn = f"{position >> 32:X}/{position & 0xFFFFFFFF:08X}"
        self._restore(f"recovery_target_lsn = '{lsn}'")

    def restore_to_time(self, instant: str) -> None:
        """Put the backup in the server's place and replay WAL up to a moment."""
        self._restore(f"recovery_target_time = '{instant}'")

    def _restore(self, target: str) -> None:
        kill(self.server)
        data = self.server.directory / "data"
        shutil.rmtree(data)
        shutil.copytree(self._backup, data)
        # What is written after the restore is another history: keep it apart.
        _configure(
            data,
            "archive_mode = 'off'",
            f'restore_command = \'cp "{self._archive}/%f" "%p"\'',
            target,
            "recovery_target_action = 'promote'",
        )
        (data / "recovery.signal").touch()
        self.server.start()
        await_row(self.dsn, "SELECT WHERE NOT pg_is_in_recovery()")


def stand_by(primary: EmbeddedPostgres, directory: Path) -> EmbeddedPostgres:
    """Start a hot standby that streams from the primary and has all that it has."""
    directory.mkdir(parents=True)
    execute(
        primary.dsn,
        # A former primary can only be rewound with its WAL since the two parted.
        "ALTER SYSTEM SET wal_keep_size = '256MB'",
        "SELECT pg_reload_conf()",
    )
    _base_backup(primary, directory / "data", "-X", "stream", "-R")
    shutil.copy(primary.directory / "password", directory / "password")
    standby = EmbeddedPostgres(directory)
    standby.start()
    await_caught_up(primary)
    return standby


def await_caught_up(primary: EmbeddedPostgres) -> None:
    """Wait until every change made so far can be read on the one standby."""
    ((lsn,),) = query(primary.dsn, "SELECT pg_current_wal_insert_lsn()::text")
    await_row(
        primary.dsn, f"SELECT FROM pg_stat_replication WHERE replay_lsn >= '{lsn}'"
    )


def be_synchronous(primary: EmbeddedPostgres) -> None:
    """Let every commit wait until the standby has it on disk."""
    execute(
        primary.dsn,
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    )
    await_row(primary.dsn, "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")


def cut_off(standby: EmbeddedPostgres) -> None:
    """Let the standby receive nothing any more, as behind a broken network."""
    execute(
        standby.dsn,
        "ALTER SYSTEM SET primary_conninfo = ''",
        "SELECT pg_reload_conf()",
    )
    await_row(
        standby.dsn,
        "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_wal_receiver)",
    )


@contextmanager
def paused_receiver(standby: EmbeddedPostgres) -> Iterator[None]:
    """Stop the process that receives WAL for the block; it answers nobody."""
    ((process_id,),) = query(standby.dsn, "SELECT pid FROM pg_stat_wal_receiver")
    receiver = psutil.Process(process_id)
    receiver.suspend()
    try:
        yield
    finally:
        receiver.resume()


def promote(standby: EmbeddedPostgres) -> None:
    """Make a standby a primary; returns when it takes writes."""
    assert [(True,)] == query(standby.dsn, "SELECT pg_promote(true, 60)")


def kill(server: EmbeddedPostgres) -> None:
    """End a server as a power cut does."""
    server.daemon.stop(signal.SIGKILL, deadline_s=_DEADLINE_S)


def rewind(former: EmbeddedPostgres, primary: EmbeddedPostgres) -> None:
    """Make a former primary, which is stopped, the standby of the new one.

    What it committed after the two parted is gone afterwards.
    """
    _run_program(
        "pg_rewind",
        *("--target-pgdata", str(former.directory / "data")),
        *("--source-server", make_conninfo(primary.dsn, dbname="postgres")),
        "--write-recovery-conf",
    )


def either_of(*servers: EmbeddedPostgres) -> str:
    """Return a DSN that finds whichever of the servers takes writes, in this order."""
    parts = [conninfo_to_dict(server.dsn) for server in servers]
    return make_conninfo(
        servers[0].dsn,
        host=",".join(str(part["host"]) for part in parts),
        port=",".join(str(part["port"]) for part in parts),
        target_session_attrs="read-write",
    )


def timeline(dsn: str) -> int:
    """Return the number of the history that the server writes."""
    ((name,),) = query(dsn, "SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
    return int(name[:8], 16)


def await_row(dsn: str, statement: str) -> None:
    """Wait until the query gives a row."""
    deadline = time.monotonic() + _DEADLINE_S
    while not query(dsn, statement):
        assert time.monotonic() < deadline, f"still no row: {statement}"
        time.sleep(_POLL_S)


def _base_backup(server: EmbeddedPostgres, target: Path, *options: str) -> None:
    _run_program(
        "pg_basebackup",
        *("-d", server.dsn, "-D", str(target), "--checkpoint", "fast", *options),
    )


def _configure(data: Path, *lines: str) -> None:
    with (data / "postgresql.auto.conf").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def _run_program(name: str, *arguments: str) -> None:
    done = subprocess.run(
        unprivileged([str(server_binary(name)), *arguments]),
        env={k: v for k, v in os.environ.items() if not k.startswith("PG")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.stderr or done.stdout}"
