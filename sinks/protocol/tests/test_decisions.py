"""The fence, and the decision under the pipeline's lock."""

from __future__ import annotations

import pytest

from tallyweir.sinks.protocol.decisions import (
    PublishDecision,
    check_epoch,
    decide_publish,
)
from tallyweir.sinks.protocol.errors import FatalError, FencedError, TallyweirError
from tallyweir.sinks.protocol.identity import BatchKey, Epoch, Sequence, SparkBatchId
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_P0 = TopicPartition("events", 0)


def _decide(*, newest: int, stored: int, kept: bool = True) -> PublishDecision:
    return decide_publish(
        key=BatchKey(epoch=Epoch(3), spark_batch_id=SparkBatchId(0)),
        newest_epoch=Epoch(newest),
        claim_kept=kept,
        stored={_P0: stored},
        last_sequence=Sequence(4 if stored == 5 else 5),
        ranges=[OffsetRange(topic_partition=_P0, from_offset=5, until_offset=9)],
        after_sequence=Sequence(4),
    )


def _decide_tick(*, last: int, after: int) -> PublishDecision:
    return decide_publish(
        key=BatchKey(epoch=Epoch(3), spark_batch_id=None),
        newest_epoch=Epoch(3),
        claim_kept=True,
        stored={_P0: 9},
        last_sequence=Sequence(last),
        ranges=(),
        after_sequence=Sequence(after),
    )


def test_the_newest_driver_publishes_the_next_batch() -> None:
    """Own epoch and matching offsets."""
    assert PublishDecision.PUBLISH is _decide(newest=3, stored=5)


def test_the_newest_driver_learns_of_its_replay() -> None:
    """Own epoch and offsets that are past."""
    assert PublishDecision.ALREADY_COMMITTED is _decide(newest=3, stored=9)


@pytest.mark.parametrize("stored", [5, 9, 7])
@pytest.mark.parametrize(
    ("newest", "kind", "code"),
    [(4, FencedError, "FENCED"), (2, FatalError, "CLAIM_LOST")],
)
def test_the_fence_comes_before_the_offsets(
    newest: int, kind: type[TallyweirError], code: str, stored: int
) -> None:
    """Whatever the offsets say, only the newest claim may go on."""
    with pytest.raises(kind) as raised:
        _decide(newest=newest, stored=stored)
    assert (kind, code) == (type(raised.value), raised.value.code)


@pytest.mark.parametrize("stored", [5, 9, 7])
def test_an_epoch_that_another_driver_claimed_again_is_lost(stored: int) -> None:
    """After a restore the number alone does not make the claim one's own."""
    with pytest.raises(FatalError) as raised:
        _decide(newest=3, stored=stored, kept=False)
    assert "CLAIM_LOST" == raised.value.code


def test_offsets_that_fit_nowhere_are_fatal() -> None:
    """The own epoch does not excuse a gap."""
    with pytest.raises(FatalError) as raised:
        _decide(newest=3, stored=7)
    assert "OFFSETS_DISAGREE" == raised.value.code


def test_an_epoch_holds_against_itself() -> None:
    """Equal epochs are no reason to stop."""
    check_epoch(Epoch(3), Epoch(3))


def test_a_tick_is_recognised_by_the_sequence() -> None:
    """It has no offsets: the batch after the one it was planned after is itself."""
    assert PublishDecision.PUBLISH is _decide_tick(last=4, after=4)
    assert PublishDecision.ALREADY_COMMITTED is _decide_tick(last=5, after=4)


@pytest.mark.parametrize("last", [3, 6])
def test_a_tick_of_another_state_is_fatal(last: int) -> None:
    """A database that went back, or on without this driver, is not what it read."""
    with pytest.raises(FatalError) as raised:
        _decide_tick(last=last, after=4)
    assert "SEQUENCE_DISAGREES" == raised.value.code


@pytest.mark.parametrize("last", [3, 5, 6])
def test_offsets_that_fit_do_not_excuse_the_sequence(last: int) -> None:
    """A restore that took a tick back leaves the offsets as they were."""
    with pytest.raises(FatalError) as raised:
        decide_publish(
            key=BatchKey(epoch=Epoch(3), spark_batch_id=SparkBatchId(0)),
            newest_epoch=Epoch(3),
            claim_kept=True,
            stored={_P0: 5},
            last_sequence=Sequence(last),
            ranges=[OffsetRange(topic_partition=_P0, from_offset=5, until_offset=9)],
            after_sequence=Sequence(4),
        )
    assert "SEQUENCE_DISAGREES" == raised.value.code
