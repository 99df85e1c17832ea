"""Drains a pipeline: it reads no more, closes what it is told to, and is paused.

An operator asks for it by an act, which fences the driver at work like every act. The
driver starts over, finds the request, and reads nothing. It finishes branches in doubt.
If windows are to be closed, it moves the watermark to where no window waits any more.
Then it pauses its own pipeline. Each step finds out again what is left to do, so the
next driver goes on where one has died.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import Connection, Rollback
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch_one
from tallyweir.sinks.postgres.ledger.epoch_claims import (
    Drain,
    Pause,
    read_drain,
    read_pause,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import ActRequest, acting
from tallyweir.sinks.postgres.steering.pause import check_nobody_paused, insert_pause
from tallyweir.sinks.protocol.errors import ConfigurationError, FencedError
from tallyweir.sinks.protocol.identity import Epoch

_SQL = load_statements("tallyweir.sinks.postgres.steering", "drain.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOutcome:
    """How far a drain has come.

    Attributes:
        asked_after: The last batch before the request; 0 if there was none.
        drained_after: The last batch of all, which may be a tick of the drain's own;
            None until the pipeline is drained.
    """

    is_drained: bool
    is_called_off: bool
    asked_after: int
    drained_after: int | None


def drain(
    connection: Connection[TupleRow], request: ActRequest, *, closes_windows: bool
) -> Drain | None:
    """Ask for a drain: from the commit on, no batch reads any records.

    If the same drain was asked for already, the call returns it and changes nothing.

    Args:
        connection: To the home, outside a transaction.
        request: A request of kind ``drain``.
        closes_windows: Whether to close windows and fire timers in event time without
            waiting for events that may come later.

    Returns:
        The drain that a driver is to end; None after a dry run.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``,
            ``PAUSED_ALREADY``, or ``DRAINED_OTHERWISE``.
        RetryableError: A publish held the pipeline's row for too long.

    Crash:
        Before the COMMIT nothing has changed; after it the next driver drains.
    """
    pipeline = request.pipeline
    # Look without an act, which would fence the driver that ends the drain.
    lasting = read_drain(connection, pipeline)
    connection.rollback()
    if lasting is not None:
        return _joined(pipeline, lasting, closes_windows=closes_windows)
    with acting(
        connection, request, check=lambda: check_nobody_paused(connection, pipeline)
    ) as act:
        # Another call may have asked while this one waited for its claim or the row.
        lasting = read_drain(connection, pipeline)
        if lasting is not None:
            raise Rollback
        act.detail["closes_windows"] = closes_windows
        connection.execute(
            _SQL["ask"],
            {
                "pipeline": pipeline,
                "epoch": act.epoch,
                "closes_windows": closes_windows,
            },
        )
    if lasting is not None:
        return _joined(pipeline, lasting, closes_windows=closes_windows)
    asked = read_drain(connection, pipeline)
    connection.rollback()
    return asked


def end_drain(
    connection: Connection[TupleRow], pipeline: str, asked: Drain, *, epoch: Epoch
) -> Pause:
    """Pause a pipeline that has nothing left to do; for the driver that drains it.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        asked: The drain that the driver has finished.
        epoch: The driver's epoch. A driver that has claimed since may have read more,
            so this one may not end the drain for it.

    Raises:
        FencedError: A newer epoch is claimed, or the drain is called off.
        RetryableError: A publish held the pipeline's row for too long.

    Crash:
        Before the COMMIT the next driver does all of it again, and finds nothing to
        close; after it the pipeline is drained.
    """
    request = ActRequest(pipeline=pipeline, kind="drained", reason=asked.reason)
    with acting(connection, request) as act:
        if act.epoch != epoch + 1 or read_drain(connection, pipeline) != asked:
            raise FencedError(
                "FENCED",
                saw=f"Epoch {epoch} may not end its drain: the drain was called off, "
                f"or epoch {act.epoch - 1} has claimed since.",
                why="The driver that claimed may have read more.",
                fix="Nothing to do: if the drain is still requested, the next driver "
                "ends it.",
            )
        act.detail["closes_windows"] = asked.closes_windows
        insert_pause(
            connection, pipeline, epoch=act.epoch, reason=_reason_of_pause(asked)
        )
        connection.execute(
            _SQL["end"],
            {"pipeline": pipeline, "epoch": asked.epoch, "drained_epoch": act.epoch},
        )
        paused = read_pause(connection, pipeline)
    assert paused is not None, "the pause was just written"
    return paused


def read_drain_outcome(
    connection: Connection[TupleRow], pipeline: str, asked: Drain
) -> DrainOutcome:
    """Read how far a drain has come."""
    row = fetch_one(connection, _SQL["outcome"], pipeline=pipeline, epoch=asked.epoch)
    connection.rollback()
    return DrainOutcome(**row)


def _joined(pipeline: str, lasting: Drain, *, closes_windows: bool) -> Drain:
    if lasting.closes_windows == closes_windows:
        return lasting
    does = "closes" if lasting.closes_windows else "keeps"
    raise ConfigurationError(
        "DRAINED_OTHERWISE",
        saw=f"Pipeline {pipeline} is {lasting.told()}. That drain {does} windows.",
        why="A pipeline cannot be drained in both ways at once.",
        fix=f"Run tallyweir resume {pipeline} to call the drain off, then ask again.",
    )


def _reason_of_pause(asked: Drain) -> str:
    how = "windows closed" if asked.closes_windows else "windows kept"
    return f"{asked.reason} ({how}, as {asked.asked_by} asked)"
