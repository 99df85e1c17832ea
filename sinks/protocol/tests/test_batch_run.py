"""A run's name is published once, and a run's clocks are no stream's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallyweir.sinks.protocol.batch_run import (
    BatchRun,
    Disposition,
    RunInput,
    is_run_topic,
    streamed,
)
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import BatchKey, Epoch, Sequence, SparkBatchId
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import (
    NOTHING_STAGED,
    BatchTally,
    EventCounts,
    PartitionTally,
)
from tallyweir.sinks.protocol.watermark import ClockRule, PartitionClock

_MAY = RunInput(partition=0, name="may.csv", checksum="aa")
_JUNE = RunInput(partition=1, name="june.csv", checksum="bb")
_RUN = BatchRun(name="q2", inputs=(_MAY, _JUNE))
_STREAM = TopicPartition("orders", 0)
_DELAY_US = 10
_RULE = ClockRule(delay_us=_DELAY_US, idle_timeout_us=1_000)


def _plan(
    clocks: dict[TopicPartition, PartitionClock], watermark_us: int | None
) -> BatchPlan:
    return BatchPlan(
        key=BatchKey(epoch=Epoch(1), spark_batch_id=SparkBatchId(0)),
        ranges=[
            OffsetRange(
                topic_partition=TopicPartition(_RUN.topic, partition),
                from_offset=0,
                until_offset=3,
            )
            for partition in (0, 1)
        ],
        watermark_us=watermark_us,
        after_sequence=Sequence(0),
        clocks=clocks,
        planned_at_us=5_000,
        topic_ids={_RUN.topic: _RUN.name},
        run=_RUN,
    )


def _tally(*newest_us: int | None) -> BatchTally:
    partitions = {
        TopicPartition(_RUN.topic, partition): PartitionTally(
            counts=EventCounts(read=1, committed=1),
            offset_min=1,
            offset_max=1,
            event_time_max_us=time_us,
        )
        for partition, time_us in enumerate(newest_us)
    }
    return replace(NOTHING_STAGED, partitions=partitions)


def test_the_same_input_under_the_same_name_is_done() -> None:
    """And a name that nobody has used is free."""
    assert not _RUN.is_done(None)
    assert _RUN.is_done(replace(_RUN))


@pytest.mark.parametrize(
    "recorded",
    [
        replace(_RUN, inputs=(_MAY,)),
        replace(_RUN, inputs=(_JUNE, _MAY)),
        replace(_RUN, inputs=(_MAY, replace(_JUNE, checksum="cc"))),
        replace(_RUN, inputs=(_MAY, replace(_JUNE, name="july.csv"))),
        replace(_RUN, disposition=Disposition.TRUNCATE),
        replace(_RUN, disposition=Disposition.UPSERT),
    ],
)
def test_other_work_under_a_name_is_refused(recorded: BatchRun) -> None:
    """Fewer files, another order, other content, another name, another disposition."""
    with pytest.raises(ConfigurationError, match="RUN_NAME_TAKEN"):
        _RUN.is_done(recorded)


def test_a_disposition_is_one_thing() -> None:
    """What truncates has nothing to correct, and what corrects keeps the rest."""
    asked = [replace(_RUN, disposition=one) for one in Disposition]
    assert [(run.replaces, run.corrects) for run in asked] == [
        (False, False),
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 101, "ä", "a\n"])
def test_a_name_that_would_not_read_well_in_the_ledger_is_refused(name: str) -> None:
    """It stands beside every row."""
    with pytest.raises(ConfigurationError, match="RUN_NAME_INVALID"):
        BatchRun(name=name, inputs=(_MAY,))


def test_the_positions_of_runs_are_told_from_the_streams() -> None:
    """No topic of Kafka has a colon in its name."""
    positions = {_STREAM: 1, TopicPartition(_RUN.topic, 0): 2}
    assert streamed(positions) == {_STREAM: 1}
    assert is_run_topic(_RUN.topic)
    assert not is_run_topic("batch.q2")


def test_a_run_moves_no_watermark_of_a_stream() -> None:
    """Not even past partitions that are idle, whose events may be late but not lost."""
    idle = PartitionClock(event_time_max_us=100, active_at_us=None)
    plan = _plan({_STREAM: idle}, 90)
    assert plan.watermark_after(_RULE, _tally(4_000, 4_500)) == 90
    assert _plan({_STREAM: idle}, None).watermark_after(_RULE, _tally(4_000)) is None


def test_without_a_stream_the_newest_event_of_a_run_moves_the_watermark() -> None:
    """Its files are read to their end together, an empty one among them."""
    assert _plan({}, None).watermark_after(_RULE, _tally(1_000, 4_000)) == 3_990
    assert _plan({}, None).watermark_after(_RULE, _tally(4_000, None)) == 3_990
    assert _plan({}, 4_500).watermark_after(_RULE, _tally(1_000, 4_000)) == 4_500
    assert _plan({}, None).watermark_after(_RULE, _tally(None, None)) is None
