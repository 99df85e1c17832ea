"""Pauses a pipeline: from the commit on nothing of it is published.

A pause is an act that lasts. It fences the driver at work, and while it lasts no driver
can claim an epoch, so drivers wait. Epochs are numbered without gaps, and the statement
that takes a number looks for a pause. A driver that does not see the pause does not see
its epoch either, so the driver takes that number or an earlier one. The pause then
takes another number, which fences that driver.
"""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch_pipeline
from tallyweir.sinks.postgres.ledger.epoch_claims import (
    Drain,
    Pause,
    read_drain,
    read_pause,
)
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import LOCK_TIMEOUT_MS, ActRequest, acting
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import Epoch

_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_SQL = load_statements("tallyweir.sinks.postgres.steering", "pause.sql")


def pause(
    connection: Connection[TupleRow],
    pipeline: str,
    *,
    reason: str,
    dry_run: bool = False,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> Pause | None:
    """Let nothing of a pipeline be published any more, until ``resume``.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        reason: Why, for people who find it paused; kept permanently.
        dry_run: Only check whether the pipeline could be paused.
        lock_timeout_ms: How long to wait for a publish that is under way.

    Returns:
        The pause; None after a dry run.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``, or
            ``PAUSED_ALREADY``.
        RetryableError: A publish held the pipeline's row for too long.

    Crash:
        Before the COMMIT nothing has changed; after it the pipeline is paused, and a
        repeated call says so.
    """
    request = ActRequest(
        pipeline=pipeline,
        kind="pause",
        reason=reason,
        dry_run=dry_run,
        lock_timeout_ms=lock_timeout_ms,
    )
    with acting(
        connection,
        request,
        check=lambda: check_nobody_paused(connection, pipeline),
    ) as act:
        insert_pause(connection, pipeline, epoch=act.epoch, reason=reason)
        paused = read_pause(connection, pipeline)
    return None if dry_run else paused


def insert_pause(
    connection: Connection[TupleRow], pipeline: str, *, epoch: Epoch, reason: str
) -> None:
    """Write a pause down, inside the act whose claim is given."""
    connection.execute(
        _SQL["pause"], {"pipeline": pipeline, "epoch": epoch, "reason": reason}
    )


def check_nobody_paused(connection: Connection[TupleRow], pipeline: str) -> None:
    """Refuse an act that makes no sense while a pause lasts.

    Raises:
        ConfigurationError: ``PAUSED_ALREADY``.
    """
    lasting = read_pause(connection, pipeline)
    if lasting is not None:
        raise ConfigurationError(
            "PAUSED_ALREADY",
            saw=f"Pipeline {pipeline} is {lasting.told()}.",
            why="It publishes nothing.",
            fix=f"Nothing to do; tallyweir resume {pipeline} ends the pause.",
        )


def resume(
    connection: Connection[TupleRow], pipeline: str, *, dry_run: bool = False
) -> Pause | Drain:
    """Let a paused pipeline go on: a driver that waits claims an epoch, and works.

    A drain that no driver has ended yet is called off.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        dry_run: Only tell what would end.

    Returns:
        The pause that has ended, or the drain.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, or ``NOT_PAUSED``.

    Crash:
        Before the COMMIT the pipeline is paused; after it, it is not, and a repeated
        call says so.
    """
    with translated("resuming a pipeline"), connection.transaction():
        fetch_pipeline(connection, pipeline)
        # A driver that ends a drain holds this row, so it cannot end one meanwhile.
        connection.execute(_PUBLISH["lock_pipeline"], {"pipeline": pipeline})
        lasting = read_pause(connection, pipeline)
        asked = read_drain(connection, pipeline)
        if lasting is not None:
            if not dry_run:
                connection.execute(_SQL["resume"], {"pipeline": pipeline})
            return lasting
        if asked is not None:
            if not dry_run:
                values = {"pipeline": pipeline, "epoch": asked.epoch}
                connection.execute(_SQL["call_off_drain"], values)
            return asked
        raise ConfigurationError(
            "NOT_PAUSED",
            saw=f"Pipeline {pipeline} is not paused.",
            why="No pause is in force.",
            fix=f"tallyweir status {pipeline} shows its state.",
        )
