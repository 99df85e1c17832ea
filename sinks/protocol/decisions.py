"""May this driver publish this batch? Decided from rows read under the lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from sinks.protocol.errors import FatalError, FencedError
from sinks.protocol.identity import BatchKey, Epoch
from sinks.protocol.offsets import (
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
    """How a batch ended. Both are success: its effect is in the tables once."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"


def check_epoch(own: Epoch, newest: Epoch) -> None:
    """Refuse a driver that a newer one has superseded.

    Raises:
        FencedError: A newer epoch is claimed.
        FatalError: The own claim is gone, which only a restore can do.
    """
    if newest > own:
        raise FencedError(
            "FENCED",
            saw=f"Epoch {newest} is claimed; this driver holds epoch {own}.",
            why="A newer driver of the same pipeline has taken over, and two may "
            "not publish.",
            fix="Nothing is lost or doubled. Stop this driver for good if the other "
            "one is meant to run.",
        )
    if newest < own:
        raise claim_lost(
            f"The newest claim is epoch {newest}, this driver's was {own}."
        )


def decide_publish(
    *,
    key: BatchKey,
    newest_epoch: Epoch,
    claim_kept: bool,
    stored: Mapping[TopicPartition, int],
    ranges: Sequence[OffsetRange],
) -> PublishDecision:
    """Fence first, then compare the offsets.

    The order matters: a superseded driver whose offsets happen to fit would
    otherwise publish beside the new one.

    Args:
        key: Whose batch it is.
        newest_epoch: The newest claim, read after the pipeline's row was locked.
        claim_kept: Whether the database still holds the very claim that this driver
            made. After a restore another driver may have claimed the same epoch.
        stored: The offsets in Postgres, read under the same lock.
        ranges: What the batch covers.

    Raises:
        FencedError: A newer driver works.
        FatalError: The claim is gone, or the offsets fit neither as the next batch
            nor as a replay.
    """
    check_epoch(key.epoch, newest_epoch)
    if not claim_kept:
        raise claim_lost(f"Epoch {key.epoch} is now claimed by another driver.")
    match compare_offsets(stored, ranges):
        case OffsetsVerdict.NEXT:
            return PublishDecision.PUBLISH
        case OffsetsVerdict.ALREADY_COMMITTED:
            return PublishDecision.ALREADY_COMMITTED


def claim_lost(saw: str) -> FatalError:
    """Say that the home database no longer knows the driver's claim."""
    return FatalError(
        "CLAIM_LOST",
        saw=saw,
        why="The home database went back in time, by a restore or a failover.",
        fix="Start the driver again: it resumes from what the database holds.",
    )
