"""May this driver publish this batch, or is it committed and its answer was lost?

Decided from rows read under the lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from enum import Enum

from tallyweir.sinks.protocol.errors import FatalError, FencedError
from tallyweir.sinks.protocol.identity import BatchKey, Epoch, Sequence
from tallyweir.sinks.protocol.offsets import (
    OffsetRange,
    OffsetsVerdict,
    TopicPartition,
    compare_offsets,
)


class PublishDecision(Enum):
    """What the publish transaction does with a batch."""

    PUBLISH = "publish"
    ALREADY_COMMITTED = "already_committed"


class PublishOutcome(Enum):
    """How a batch ended; both ways are success: the tables hold its effect once."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"


def check_epoch(own: Epoch, newest: Epoch) -> None:
    """Refuse a driver that a newer one has superseded.

    Raises:
        FencedError: A newer epoch is claimed.
        FatalError: This driver's claim is gone, which only a restore can cause.
    """
    if newest > own:
        raise FencedError(
            "FENCED",
            saw=f"Epoch {newest} is claimed; this driver holds epoch {own}.",
            why="A newer driver of the same pipeline has taken over, and only one "
            "may publish.",
            fix="No event is lost or doubled. Stop this driver permanently if the "
            "other one is meant to run.",
        )
    if newest < own:
        raise claim_lost(
            f"The newest claim is epoch {newest}, this driver's was {own}."
        )


def decide_publish(  # noqa: PLR0913 - each is a fact that is asked for
    *,
    key: BatchKey,
    newest_epoch: Epoch,
    claim_kept: bool,
    stored: Mapping[TopicPartition, int],
    last_sequence: Sequence,
    ranges: Many[OffsetRange],
    after_sequence: Sequence,
) -> PublishDecision:
    """Fence first, then compare the offsets and the sequence.

    The order matters: otherwise a superseded driver whose offsets happen to fit would
    publish next to the new one.

    Args:
        key: The batch, with the epoch of its driver.
        newest_epoch: The newest claim, read after the pipeline's row was locked.
        claim_kept: Whether the database still holds the very claim that this driver
            made. After a restore another driver may have claimed the same epoch.
        stored: The offsets in Postgres, read under the same lock.
        last_sequence: The newest batch there, read under the same lock.
        ranges: What the batch covers; empty for a tick.
        after_sequence: The newest batch when this one was planned; the plan builds on
            its state.

    Raises:
        FencedError: A newer driver works.
        FatalError: The claim is gone, or offsets or sequence fit neither as the next
            batch nor as a replay.
    """
    check_epoch(key.epoch, newest_epoch)
    if not claim_kept:
        raise claim_lost(f"Epoch {key.epoch} is now claimed by another driver.")
    if ranges and compare_offsets(stored, ranges) is OffsetsVerdict.ALREADY_COMMITTED:
        return PublishDecision.ALREADY_COMMITTED
    return _compare_sequence(last_sequence, after_sequence, may_be_a_replay=not ranges)


def _compare_sequence(
    last: Sequence, after: Sequence, *, may_be_a_replay: bool
) -> PublishDecision:
    """Tell whether a batch follows the newest one.

    A tick has no offsets to be recognised by. Its driver's claim is still the newest,
    so no other driver has published since. If the ledger holds one batch more than the
    plan expects, that batch is the tick itself, and the answer to its COMMIT was lost.
    """
    if last == after:
        return PublishDecision.PUBLISH
    if may_be_a_replay and last == after + 1:
        return PublishDecision.ALREADY_COMMITTED
    raise FatalError(
        "SEQUENCE_DISAGREES",
        saw=f"The batch was planned after batch {after}; the newest is {last}.",
        why="The batch was computed from a state that differs from the pipeline's.",
        fix="Restart the driver: it resumes from what the database holds.",
    )


def claim_lost(saw: str) -> FatalError:
    """Say that the home database no longer knows the driver's claim."""
    return FatalError(
        "CLAIM_LOST",
        saw=saw,
        why="The home database went back in time, by a restore or a failover.",
        fix="Restart the driver: it resumes from what the database holds.",
    )
