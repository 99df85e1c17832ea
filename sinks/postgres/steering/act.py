"""An act of an operator: one transaction, behind a claim that fences whoever works.

The claim asks nobody: who works is fenced at his next publish, wherever he runs and
whether he answers or not, and drops the batch at hand whole. A driver then starts over
and finds what the act has left; what its batch had read is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.errors import LockNotAvailable
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from sinks.faultpoints import ActPoint, making
from sinks.postgres.ledger.audited_pipeline import fetch, fetch_pipeline
from sinks.postgres.ledger.epoch_claims import draw_nonce, insert_claim
from sinks.postgres.server.sqlstate import translated
from sinks.postgres.server.statements import load_statements
from sinks.protocol.errors import ConfigurationError, RetryableError
from sinks.protocol.identity import Epoch

_PUBLISH = load_statements("sinks.postgres.publish", "publish.sql")
_SQL = load_statements("sinks.postgres.steering", "act.sql")

#: How long a publish or a snapshot at hand is waited for.
LOCK_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRequest:
    """What somebody asks for.

    Attributes:
        pipeline: Its name.
        kind: The command's name.
        reason: For whoever asks later.
        dry_run: Whether all of it is taken back.
        lock_timeout_ms: How long a publish or a snapshot at hand is waited for.
    """

    pipeline: str
    kind: str
    reason: str
    dry_run: bool = False
    lock_timeout_ms: int = LOCK_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Where an act finds its pipeline, which nobody else changes until it ends.

    Attributes:
        epoch: Its claim.
        last_sequence: The last batch that was published before it; 0 if none was.
        detail: What it changes, for whoever asks later; filled while it is done.
    """

    epoch: Epoch
    last_sequence: int
    watermark: datetime | None
    detail: dict[str, Any]


@contextmanager
def acting(
    connection: Connection[TupleRow],
    request: ActRequest,
    *,
    check: Callable[[], None] = lambda: None,
    snapshots_of: Sequence[str] = (),
) -> Iterator[Act]:
    """Do what is inside in one transaction that nobody else publishes beside.

    The act is noted in ``tallyweir.act`` with it. A dry run does the same and takes it
    back, so it finds what the act itself would find; nobody is fenced by it.

    Args:
        connection: To the home, not inside of a transaction.
        request: What is asked for.
        check: Called before each try to claim, and again when nobody else changes the
            pipeline any more; what it raises ends the act.
        snapshots_of: Pipelines of which nobody may take a snapshot meanwhile, in the
            order in which that is waited for.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``, or what ``check``
            raises.
        RetryableError: ``SNAPSHOT_AT_WORK``; or a publish held the pipeline's row for
            too long.

    Crash:
        Before the COMMIT nothing has changed and nobody is fenced; after it all of it
        has.
    """
    check_reason(request.reason)
    pipeline = request.pipeline
    timeout = f"{request.lock_timeout_ms}ms"
    with (
        translated(f"{request.kind} of a pipeline"),
        making(ActPoint.IN_FORCE),
        connection.transaction(),
    ):
        fetch_pipeline(connection, pipeline)
        fetch(connection, _SQL["begin_settings"], timeout=timeout)
        # Before anything that a publish or a claim could wait for.
        for one in snapshots_of:
            hold_snapshots(connection, one)
        with making(ActPoint.CLAIMED):
            epoch = _claim(connection, pipeline, check)
        # Whoever publishes holds this row. Who comes after us finds our claim.
        with making(ActPoint.PIPELINE_HELD):
            (held,) = fetch(connection, _PUBLISH["lock_pipeline"], pipeline=pipeline)
        check()
        act = Act(
            epoch=epoch,
            last_sequence=held["last_sequence"],
            watermark=held["watermark"],
            detail={},
        )
        yield act
        values = {
            "pipeline": pipeline,
            "epoch": epoch,
            "kind": request.kind,
            "reason": request.reason,
            "after_sequence": act.last_sequence,
            "detail": Jsonb(act.detail),
        }
        with making(ActPoint.NOTED):
            connection.execute(_SQL["note_act"], values)
        if request.dry_run:
            raise psycopg.Rollback


def hold_snapshots(connection: Connection[TupleRow], pipeline: str) -> None:
    """Wait for a snapshot that is being taken, and keep others from it until the end.

    Until it is committed a snapshot cannot be seen, and it will be of a moment before
    whatever is done now. So who looks at snapshots, or changes what they copy, calls
    this first; who finds one under way for longer than the lock timeout gives up.

    Raises:
        RetryableError: ``SNAPSHOT_AT_WORK``.
    """
    try:
        fetch(connection, _SQL["hold_snapshots"], pipeline=pipeline)
    except LockNotAvailable as error:
        raise RetryableError(
            "SNAPSHOT_AT_WORK",
            saw=f"A snapshot of pipeline {pipeline} is being taken, or another act "
            "on it is at work.",
            why="A snapshot that nobody can see yet would be left as it is, and be of "
            "what is not so any more.",
            fix="Wait until it has ended, then call again.",
        ) from error


def check_reason(reason: str) -> None:
    """Refuse an act without a reason.

    Raises:
        ConfigurationError: ``REASON_MISSING``.
    """
    if not reason.strip():
        raise ConfigurationError(
            "REASON_MISSING",
            saw="The reason is blank.",
            why="Somebody else will find the pipeline changed, perhaps at night.",
            fix="Say what is going on (--reason).",
        )


def _claim(
    connection: Connection[TupleRow], pipeline: str, check: Callable[[], None]
) -> Epoch:
    while True:
        check()
        epoch = insert_claim(connection, pipeline, nonce=draw_nonce(), is_act=True)
        if epoch is not None:
            return epoch
        # Somebody took that very number; it is now visible to us.
