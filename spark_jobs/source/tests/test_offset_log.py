"""The ranges of a batch, from the log that Spark writes before it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.spark_jobs.source.kafka_source import read_planned_ranges

_META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def _log(checkpoint: Path, batch: int, offsets: str) -> None:
    folder = checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    (folder / str(batch)).write_text(f'v1\n{_META}\n{{"t":{offsets}}}')


def _range(partition: int, from_offset: int, until_offset: int) -> OffsetRange:
    return OffsetRange(
        topic_partition=TopicPartition("t", partition),
        from_offset=from_offset,
        until_offset=until_offset,
    )


def test_the_first_batch_starts_where_the_query_was_told_to(tmp_path: Path) -> None:
    """Ranges are half-open, ordered by partition number, not by its text."""
    _log(tmp_path, 0, '{"10":7,"2":5}')
    starts = {TopicPartition("t", 2): 3, TopicPartition("t", 10): 7}
    assert [_range(2, 3, 5), _range(10, 7, 7)] == read_planned_ranges(
        tmp_path, 0, starts
    )


def test_a_later_batch_starts_where_the_one_before_ended(tmp_path: Path) -> None:
    """A partition that was added since begins at its first offset."""
    _log(tmp_path, 3, '{"0":5}')
    _log(tmp_path, 4, '{"0":9,"1":2}')
    assert [_range(0, 5, 9), _range(1, 0, 2)] == read_planned_ranges(
        tmp_path, 4, {TopicPartition("t", 0): 1}
    )


@pytest.mark.parametrize("missing", [3, 4])
def test_a_deleted_checkpoint_makes_the_driver_start_over(
    missing: int, tmp_path: Path
) -> None:
    """Both entries are needed; without one of them nothing is guessed."""
    _log(tmp_path, 3, '{"0":5}')
    _log(tmp_path, 4, '{"0":9}')
    (tmp_path / "offsets" / str(missing)).unlink()
    with pytest.raises(RetryableError) as caught:
        read_planned_ranges(tmp_path, 4, {})
    assert "CHECKPOINT_GONE" == caught.value.code
