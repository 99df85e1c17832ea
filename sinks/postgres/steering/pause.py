"""Pauses a pipeline: from the commit on nothing of it is published.

A pause claims an epoch, as a driver does that takes over, so it needs nobody's consent:
who works is fenced at his next publish, wherever he runs and whether he answers or not,
drops the batch at hand whole, and waits. What that batch had read is read again after
the pause.

While a pause lasts no epoch can be claimed. Epochs are numbered without gaps, and the
statement that takes a number looks for a pause: whoever does not see the pause does not
see its number either, so he takes that number or an earlier one, and the pause takes
another, which fences him.
"""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.audit.audited_pipeline import fetch, fetch_pipeline
from sinks.postgres.epoch_claims import Pause, insert_claim, read_pause
from sinks.postgres.sqlstate import translated
from sinks.postgres.statements import load_statements
from sinks.protocol.errors import ConfigurationError
from sinks.protocol.identity import Epoch

_PUBLISH = load_statements("sinks.postgres", "publish.sql")
_SQL = load_statements("sinks.postgres.steering", "pause.sql")

#: How long a publish at hand is waited for.
LOCK_TIMEOUT_MS = 30_000


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
        connection: To the home, not inside of a transaction.
        pipeline: Its name.
        reason: For whoever finds it paused; kept for good.
        dry_run: Only check whether it could be paused.
        lock_timeout_ms: How long a publish at hand is waited for.

    Returns:
        The pause; None after a dry run.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``PAUSE_REASON_MISSING``, or
            ``PAUSED_ALREADY``.
        RetryableError: A publish held the pipeline's row for too long.

    Crash:
        Before the COMMIT nothing has changed; after it the pipeline is paused, and a
        repeated call says so.
    """
    if not reason.strip():
        raise ConfigurationError(
            "PAUSE_REASON_MISSING",
            saw="The reason is blank.",
            why="Somebody else will find the pipeline paused, perhaps at night.",
            fix="Pass --reason with what is going on, and when it should go on.",
        )
    with translated("pausing a pipeline"), connection.transaction():
        fetch_pipeline(connection, pipeline)
        _check_not_paused(connection, pipeline)
        if dry_run:
            return None
        fetch(connection, _SQL["set_lock_timeout"], timeout=f"{lock_timeout_ms}ms")
        epoch = _claim(connection, pipeline)
        # Whoever publishes holds this row. Who comes after us finds our claim.
        fetch(connection, _PUBLISH["lock_pipeline"], pipeline=pipeline)
        connection.execute(
            _SQL["pause"], {"pipeline": pipeline, "epoch": epoch, "reason": reason}
        )
        return read_pause(connection, pipeline)


def _claim(connection: Connection[TupleRow], pipeline: str) -> Epoch:
    while True:
        claimed = insert_claim(connection, pipeline)
        if claimed is not None:
            return claimed[0]
        # Somebody took that very number, perhaps for a pause; it is now visible to us.
        _check_not_paused(connection, pipeline)


def _check_not_paused(connection: Connection[TupleRow], pipeline: str) -> None:
    lasting = read_pause(connection, pipeline)
    if lasting is not None:
        raise ConfigurationError(
            "PAUSED_ALREADY",
            saw=f"Pipeline {pipeline} is {lasting.told()}.",
            why="Nothing of it is published.",
            fix=f"Nothing; tallyweir resume {pipeline} ends the pause.",
        )


def resume(
    connection: Connection[TupleRow], pipeline: str, *, dry_run: bool = False
) -> Pause:
    """Let a paused pipeline go on: whoever waits claims an epoch, and works.

    Args:
        connection: To the home, not inside of a transaction.
        pipeline: Its name.
        dry_run: Only tell which pause would end.

    Returns:
        The pause that has ended.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, or ``NOT_PAUSED``.

    Crash:
        Before the COMMIT the pipeline is paused; after it, it is not, and a repeated
        call says so.
    """
    with translated("resuming a pipeline"), connection.transaction():
        fetch_pipeline(connection, pipeline)
        lasting = read_pause(connection, pipeline)
        if lasting is None:
            raise ConfigurationError(
                "NOT_PAUSED",
                saw=f"Pipeline {pipeline} is not paused.",
                why="There is nothing to end.",
                fix=f"tallyweir status {pipeline} tells what it does.",
            )
        if not dry_run:
            connection.execute(_SQL["resume"], {"pipeline": pipeline})
        return lasting
