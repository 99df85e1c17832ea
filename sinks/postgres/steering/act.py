"""An act of an operator: one transaction, behind a claim that fences the driver.

The claim needs no answer from the driver at work. The driver is fenced at its next
publish, wherever it runs and whether it responds or not, and drops its current batch
whole. It then starts over and finds what the act has left; it reads again what that
batch had read.
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

from tallyweir.sinks.faultpoints import ActPoint, making
from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch, fetch_pipeline
from tallyweir.sinks.postgres.ledger.epoch_claims import draw_nonce, insert_claim
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.identity import Epoch

_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_SQL = load_statements("tallyweir.sinks.postgres.steering", "act.sql")

#: How long to wait for a publish or a snapshot that is under way.
LOCK_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRequest:
    """A request of an operator.

    Attributes:
        pipeline: The pipeline's name.
        kind: The command's name.
        reason: Why, for people who ask later.
        dry_run: Whether to roll everything back at the end.
        lock_timeout_ms: How long to wait for a publish or a snapshot under way.
    """

    pipeline: str
    kind: str
    reason: str
    dry_run: bool = False
    lock_timeout_ms: int = LOCK_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A pipeline as an act finds it; nothing else changes it until the act ends.

    Attributes:
        epoch: The act's claim.
        last_sequence: The last batch that was published before it; 0 if none was.
        detail: What the act changes, for people who ask later; filled as it runs.
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
    """Run the block in one transaction, during which no driver publishes.

    The transaction notes the act in ``tallyweir.act``. A dry run does the same and
    rolls it back, so it finds what the act itself would find, and fences no driver.

    Args:
        connection: To the home, outside a transaction.
        request: What the operator asks for.
        check: Called before each try to claim, and again when nothing else can change
            the pipeline any more; an exception from it ends the act.
        snapshots_of: Pipelines of which no snapshot may be taken meanwhile, in the
            order in which to wait for snapshots under way.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``, or what ``check``
            raises.
        RetryableError: ``SNAPSHOT_AT_WORK``; or a publish held the pipeline's row for
            too long.

    Crash:
        Before the COMMIT nothing has changed and no driver is fenced; after it the act
        is done.
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
        # Take these locks before any that a publish or a claim could wait for.
        for one in snapshots_of:
            hold_snapshots(connection, one)
        with making(ActPoint.CLAIMED):
            epoch = _claim(connection, pipeline, check)
        # A publish holds this row. A driver that gets it later finds the act's claim.
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
    """Wait for a snapshot that is being taken, and block others until the end.

    A snapshot cannot be seen until it is committed, and it will show a moment before
    the changes of this transaction. So call this before looking at snapshots or
    changing what they copy. It gives up if a snapshot takes longer than the lock
    timeout.

    Raises:
        RetryableError: ``SNAPSHOT_AT_WORK``.
    """
    try:
        fetch(connection, _SQL["hold_snapshots"], pipeline=pipeline)
    except LockNotAvailable as error:
        raise RetryableError(
            "SNAPSHOT_AT_WORK",
            saw=f"A snapshot of pipeline {pipeline} is being taken, or another act on "
            "it is running.",
            why="The act would not see that snapshot, which would then describe an "
            "outdated state.",
            fix="Wait until it has ended, then try again.",
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
            why="Another operator will find the pipeline changed and must know why.",
            fix="Explain the change with --reason.",
        )


def _claim(
    connection: Connection[TupleRow], pipeline: str, check: Callable[[], None]
) -> Epoch:
    while True:
        check()
        epoch = insert_claim(connection, pipeline, nonce=draw_nonce(), is_act=True)
        if epoch is not None:
            return epoch
        # Another claim took the same number; this transaction sees it by now.


def act_as(connection: Connection[TupleRow], name: str) -> None:
    """Note whatever this session does with a name, together with that of its login.

    Args:
        connection: To the home, outside a transaction.
        name: The name of a person whom the caller has identified.

    Raises:
        RetryableError: The server went away.
    """
    with translated("identifying the operator"), connection.transaction():
        connection.execute(_SQL["set_actor"], {"name": name})
