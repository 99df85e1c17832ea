"""Who has claimed a pipeline last: a driver, a batch run, or a pause.

The functions work in the caller's transaction.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow, class_row

from sinks.postgres.naming import application_name
from sinks.postgres.registration import check_not_discarded
from sinks.postgres.statements import load_statements
from sinks.protocol.errors import RetryableError
from sinks.protocol.identity import Epoch

_CLAIM = load_statements("sinks.postgres", "claim.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause that lasts.

    Attributes:
        last_sequence: The last batch that was published before it; 0 if none was.
        is_drained: Whether a drain has ended with it.
    """

    reason: str
    paused_by: str
    paused_at: datetime
    last_sequence: int
    is_drained: bool

    def told(self) -> str:
        """Say since when, by whom and why."""
        since = self.paused_at.isoformat(sep=" ", timespec="seconds")
        word = "drained" if self.is_drained else "paused"
        return f"{word} since {since} by {self.paused_by}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A drain that somebody has asked for, and that no driver has ended yet.

    Attributes:
        epoch: The claim of whoever asked.
        closes_windows: Whether windows and timers are not to wait for more events.
    """

    epoch: Epoch
    closes_windows: bool
    reason: str
    asked_by: str
    asked_at: datetime

    def told(self) -> str:
        """Say since when, by whom and why."""
        since = self.asked_at.isoformat(sep=" ", timespec="seconds")
        return f"to be drained since {since}, as {self.asked_by} asked: {self.reason}"


def insert_claim(
    connection: Connection[TupleRow],
    pipeline: str,
    *,
    run: str | None = None,
    is_act: bool = False,
) -> tuple[Epoch, str] | None:
    """Claim the next epoch for this process.

    Args:
        connection: In whose transaction it is claimed.
        pipeline: Its name.
        run: The batch run that claims; None for everybody else.
        is_act: Whether somebody claims who publishes nothing: a pause does not keep
            him, and drivers take him for nobody who works.

    Returns:
        The epoch and its nonce; None if somebody took that very number meanwhile, or a
        pause lasts: the next statement sees which.
    """
    row = connection.execute(
        _CLAIM["claim_epoch"],
        {
            "pipeline": pipeline,
            "host": socket.gethostname(),
            "process_id": os.getpid(),
            "run": run,
            "is_act": is_act,
        },
    ).fetchone()
    return None if row is None else (Epoch(row[0]), row[1])


def read_pause(connection: Connection[TupleRow], pipeline: str) -> Pause | None:
    """Return the pause that lasts; None if none does."""
    with connection.cursor(row_factory=class_row(Pause)) as cursor:
        return cursor.execute(
            _CLAIM["current_pause"], {"pipeline": pipeline}
        ).fetchone()


def read_drain(connection: Connection[TupleRow], pipeline: str) -> Drain | None:
    """Return the drain that a driver has yet to end; None if nobody asked for one."""
    with connection.cursor(row_factory=class_row(Drain)) as cursor:
        return cursor.execute(
            _CLAIM["current_drain"], {"pipeline": pipeline}
        ).fetchone()


def check_not_paused(connection: Connection[TupleRow], pipeline: str) -> None:
    """Refuse to work on a pipeline that is paused.

    Raises:
        RetryableError: ``PAUSED``.
    """
    lasting = read_pause(connection, pipeline)
    if lasting is not None:
        raise RetryableError(
            "PAUSED",
            saw=f"The pipeline is {lasting.told()}.",
            why="Nothing of it is published until it goes on.",
            fix=f"tallyweir resume {pipeline}, when its time has come; a driver that "
            "runs waits for it.",
        )


def read_newest_epoch(connection: Connection[TupleRow], pipeline: str) -> Epoch:
    """Return the newest epoch that anybody claimed; 0 if none is kept.

    Raises:
        ConfigurationError: ``PIPELINE_DISCARDED``.
    """
    row = connection.execute(_CLAIM["newest_epoch"], {"pipeline": pipeline}).fetchone()
    if row is None:
        check_not_discarded(connection, pipeline)
    return Epoch(row[0] if row else 0)


def read_newest_driver_epoch(connection: Connection[TupleRow], pipeline: str) -> Epoch:
    """Return the newest epoch that a driver claimed, and no batch run or pause.

    Raises:
        ConfigurationError: ``PIPELINE_DISCARDED``.
    """
    row = connection.execute(
        _CLAIM["newest_driver_epoch"], {"pipeline": pipeline}
    ).fetchone()
    assert row is not None
    if row == (None,):
        check_not_discarded(connection, pipeline)
    return Epoch(row[0] or 0)


def read_hold(connection: Connection[TupleRow], pipeline: str) -> str | None:
    """Say who keeps a driver from claiming: a pause, or a batch run at work.

    A run whose process has ended is not at work: it has no session any more.
    """
    pause = read_pause(connection, pipeline)
    if pause is not None:
        return pause.told()
    row = connection.execute(_CLAIM["newest_claim"], {"pipeline": pipeline}).fetchone()
    if row is None:
        return None
    epoch, run, number, has_published, is_fresh = row
    if run is None or has_published:
        return None
    sessions = connection.execute(
        _CLAIM["has_sessions"], {"application_name": application_name(number, epoch)}
    ).fetchone()
    assert sessions is not None
    return f"batch run {run}" if is_fresh or sessions[0] else None


def identify(connection: Connection[TupleRow], pipeline: str) -> tuple[str, int]:
    """Return the installation's id and the number of a pipeline in it."""
    row = connection.execute(_CLAIM["identify"], {"pipeline": pipeline}).fetchone()
    assert row is not None
    installation, number = row
    return installation, number
