"""Who has claimed a pipeline last: a driver, a batch run, or a pause.

The functions work in the caller's transaction.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow, class_row

from sinks.postgres.ledger.registration import check_not_discarded
from sinks.postgres.server.naming import application_name
from sinks.postgres.server.statements import load_statements
from sinks.protocol.errors import RetryableError
from sinks.protocol.identity import Epoch
from sinks.protocol.in_doubt import Claim

_CLAIM = load_statements("sinks.postgres.ledger", "claim.sql")
_PUBLISH = load_statements("sinks.postgres.publish", "publish.sql")


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
    nonce: str,
    run: str | None = None,
    is_act: bool = False,
) -> Epoch | None:
    """Claim the next epoch for this process.

    Args:
        connection: In whose transaction it is claimed.
        pipeline: Its name.
        nonce: As ``draw_nonce`` gave it.
        run: The batch run that claims; None for everybody else.
        is_act: Whether somebody claims who publishes nothing: a pause does not keep
            him, and drivers take him for nobody who works.

    Returns:
        The epoch; None if somebody took that very number meanwhile, or a pause lasts:
        the next statement sees which.
    """
    row = connection.execute(
        _CLAIM["claim_epoch"],
        {
            "pipeline": pipeline,
            "nonce": nonce,
            "host": socket.gethostname(),
            "process_id": os.getpid(),
            "run": run,
            "is_act": is_act,
        },
    ).fetchone()
    return None if row is None else Epoch(row[0])


def make_claim(
    connection: Connection[TupleRow],
    pipeline: str,
    *,
    nonce: str,
    run: str | None,
    check: Callable[[], object],
) -> Claim:
    """Claim the next epoch to work under, and commit that.

    Args:
        connection: Not inside of a transaction.
        pipeline: Its name.
        nonce: As ``draw_nonce`` gave it.
        run: The batch run that claims; None for a driver.
        check: Called before each commit; what it raises takes the claim back.

    Raises:
        RetryableError: ``PAUSED``; or, as an error of Postgres, an act has claimed and
            does not end.

    Crash:
        Before the commit nothing happened; after it the epoch is spent.
    """
    while True:
        # Behind somebody who has claimed and not committed yet, as an act does; who
        # waits for that without an end says nothing and hears nobody.
        connection.execute(_PUBLISH["begin_settings"])
        epoch = insert_claim(connection, pipeline, nonce=nonce, run=run)
        check()
        connection.commit()
        if epoch is not None:
            installation, number = identify(connection, pipeline)
            return Claim(
                installation=installation,
                pipeline_number=number,
                epoch=epoch,
                nonce=nonce,
            )
        # Somebody took that very number, or has paused; it is now visible to us.
        check_not_paused(connection, pipeline)
        connection.commit()


def draw_nonce() -> str:
    """Draw what tells a claim from every other one of the same epoch.

    It is drawn before the claim is sent: who never hears whether it was committed
    knows it again.
    """
    return secrets.token_hex(4)


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


def read_newest_driver_claim(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[Epoch, str]:
    """Return the newest epoch that a driver claimed, and no batch run or act.

    Returns:
        With its nonce; 0 and nothing if there is none.

    Raises:
        ConfigurationError: ``PIPELINE_DISCARDED``.
    """
    row = connection.execute(
        _CLAIM["newest_driver_claim"], {"pipeline": pipeline}
    ).fetchone()
    if row is None:
        check_not_discarded(connection, pipeline)
        return Epoch(0), ""
    return Epoch(row[0]), row[1]


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
