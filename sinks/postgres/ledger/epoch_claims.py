"""Registration of pipelines, claims of epochs, and what keeps drivers from claiming.

A pause keeps drivers from claiming until it ends, a discard for good. A discarded
pipeline worked in the shadow of another, so its file names the other's tables. If its
name were registered again, a driver would read the topic from its start into these
tables. So the name stays blocked until an operator forks under it.

Most functions work in the caller's transaction; ``make_claim`` commits.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow, class_row

from tallyweir.sinks.postgres.server.naming import application_name
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim

_CLAIM = load_statements("tallyweir.sinks.postgres.ledger", "claim.sql")
_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause that lasts.

    Attributes:
        last_sequence: The last batch that was published before it; 0 without one.
        is_drained: Whether a drain has ended with this pause.
    """

    reason: str
    paused_by: str
    paused_at: datetime
    last_sequence: int
    is_drained: bool

    def told(self) -> str:
        """Return a phrase with the time, the operator and the reason."""
        since = self.paused_at.isoformat(sep=" ", timespec="seconds")
        word = "drained" if self.is_drained else "paused"
        return f"{word} since {since} by {self.paused_by}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A drain that an operator has asked for, and that no driver has ended yet.

    Attributes:
        epoch: The claim of the act that asked for it.
        closes_windows: Whether windows and timers do not wait for more events.
    """

    epoch: Epoch
    closes_windows: bool
    reason: str
    asked_by: str
    asked_at: datetime

    def told(self) -> str:
        """Return a phrase with the time, the operator and the reason."""
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
        connection: Makes the claim in its open transaction.
        pipeline: Its name.
        nonce: The result of ``draw_nonce``.
        run: The batch run that claims; None for a driver or an act.
        is_act: Whether an act claims. It publishes nothing: a pause does not stop it,
            and drivers do not count it as a driver at work.

    Returns:
        The epoch. None if another process took the same number meanwhile, or if a pause
        lasts; the next statement sees which.
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
) -> EpochClaim:
    """Claim the next epoch to work under, and commit that.

    Args:
        connection: Outside of a transaction.
        pipeline: Its name.
        nonce: The result of ``draw_nonce``.
        run: The batch run that claims; None for a driver.
        check: Called before each commit; an error that it raises undoes the claim.

    Raises:
        RetryableError: ``PAUSED``; or, as an error of Postgres, an act has claimed and
            does not end.

    Crash:
        Before the commit nothing happened; after it the epoch is spent.
    """
    while True:
        # The insert waits for a claim that is not committed yet, such as an act's. The
        # settings bound that wait, so that this process stays responsive.
        connection.execute(_PUBLISH["begin_settings"])
        epoch = insert_claim(connection, pipeline, nonce=nonce, run=run)
        check()
        connection.commit()
        if epoch is not None:
            installation, number = identify(connection, pipeline)
            return EpochClaim(
                installation=installation,
                pipeline_number=number,
                epoch=epoch,
                nonce=nonce,
            )
        # Another process took this number, or an operator paused the pipeline. This
        # is now visible here.
        check_not_paused(connection, pipeline)
        connection.commit()


def draw_nonce() -> str:
    """Draw the nonce that tells a claim from all others of the same epoch.

    Draw it before sending the claim: a process that loses the answer to its COMMIT
    recognises its claim by the nonce.
    """
    return secrets.token_hex(4)


def read_pause(connection: Connection[TupleRow], pipeline: str) -> Pause | None:
    """Return the pause that lasts; None if the pipeline is not paused."""
    with connection.cursor(row_factory=class_row(Pause)) as cursor:
        return cursor.execute(
            _CLAIM["current_pause"], {"pipeline": pipeline}
        ).fetchone()


def read_drain(connection: Connection[TupleRow], pipeline: str) -> Drain | None:
    """Return the drain that a driver has yet to end; None without one."""
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
            why="It publishes nothing until it is resumed.",
            fix=f"Run tallyweir resume {pipeline} when it may continue; a running "
            "driver waits for that.",
        )


def read_newest_epoch(connection: Connection[TupleRow], pipeline: str) -> Epoch:
    """Return the newest claimed epoch; 0 if no claim is kept.

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
    """Return the newest claim of a driver, ignoring batch runs and acts.

    Returns:
        Its epoch and its nonce; 0 and an empty nonce if there is none.

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
    """Say what keeps a driver from claiming: a pause, or a batch run at work.

    A run whose process has ended is not at work: it has no session.
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


_REGISTRATION = load_statements("tallyweir.sinks.postgres.ledger", "registration.sql")


def register_pipeline(
    connection: Connection[TupleRow], values: Mapping[str, object]
) -> tuple[int, int]:
    """Register a pipeline that is not known, and keep it from being discarded.

    The pipeline cannot be discarded until the caller's transaction ends. So a later
    discard finds everything that this transaction makes for it, and leaves none behind.

    Returns:
        The pipeline's number, and the length of its buckets in seconds.

    Raises:
        ConfigurationError: ``PIPELINE_DISCARDED``.
    """
    registered = connection.execute(_REGISTRATION["register_pipeline"], values)
    # A separate statement sees a discard that was committed while the first statement
    # waited for it.
    row = connection.execute(_REGISTRATION["hold_registered"], values).fetchone()
    if registered.rowcount or row is None:
        check_not_discarded(connection, str(values["pipeline"]))
    assert row is not None
    number, bucket_seconds = row
    return number, bucket_seconds


def check_not_discarded(connection: Connection[TupleRow], pipeline: str) -> None:
    """Refuse a name if a pipeline of this name was discarded.

    Raises:
        ConfigurationError: ``PIPELINE_DISCARDED``.
    """
    row = connection.execute(
        _REGISTRATION["discarded"], {"pipeline": pipeline}
    ).fetchone()
    if row is None:
        return
    front, batches, committed, reason, who, when = row
    raise ConfigurationError(
        "PIPELINE_DISCARDED",
        saw=f"Pipeline {pipeline} was discarded at "
        f"{when.isoformat(sep=' ', timespec='seconds')} by {who}, with its {batches} "
        f"batches of {committed} committed events"
        + (f", in the shadow of {front}" if front else "")
        + f": {reason}.",
        why="Its tables and state are gone, and its file names the tables that "
        "readers use: under that name it would read its topic from the start "
        "into them.",
        fix="Leave it discarded; or give its file another name and its own tables; "
        f"or fork it again: tallyweir fork {front or 'PIPELINE'} {pipeline} "
        "--reason TEXT.",
    )
