"""From which batch on a pipeline can be computed again."""

from __future__ import annotations

import pytest

from tallyweir.sinks.postgres.audit.replay.replay_committed import (
    RecordedBatch,
    RecordedPipeline,
    RecordedVersion,
)
from tallyweir.sinks.protocol.batch_run import BatchRun, RunInput
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.spark_jobs.replay.coverage import find_beginning

_PLACE = TopicPartition("orders", 0)


def _batch(sequence: int, run: BatchRun | None = None) -> RecordedBatch:
    covered = OffsetRange(
        topic_partition=_PLACE,
        from_offset=10 * (sequence - 1),
        until_offset=10 * sequence,
    )
    return RecordedBatch(
        sequence=sequence,
        epoch=1,
        ranges=(covered,),
        records=10,
        watermark_before_us=None,
        watermark_after_us=None,
        planned_at_us=0,
        lookups={},
        run=run,
    )


def _recorded(
    *batches: RecordedBatch, versions: tuple[tuple[str, int], ...] = (("same", 0),)
) -> RecordedPipeline:
    return RecordedPipeline(
        batches=batches,
        topic_ids={"orders": "id-1"},
        versions=tuple(
            RecordedVersion(version=number, definition_hash=one, from_sequence=after)
            for number, (one, after) in enumerate(versions, 1)
        ),
        erasures=(),
        erased_conditions={},
    )


def _held(begin: int, topic_id: str = "id-1") -> dict[TopicPartition, BrokerPosition]:
    position = BrokerPosition(
        topic_id=topic_id, log_start_offset=begin, log_end_offset=1_000
    )
    return {_PLACE: position}


_THREE = (_batch(1), _batch(2), _batch(3))


def test_all_is_computed_again_that_kafka_has() -> None:
    """Nothing stands in the way of the first batch."""
    assert (0, "") == find_beginning(_recorded(*_THREE), "same", _held(0))


@pytest.mark.parametrize(("begin", "after"), [(1, 1), (10, 1), (11, 2), (30, 3)])
def test_a_batch_is_computed_again_only_whole(begin: int, after: int) -> None:
    """With one record less than it has read, it would not be the same batch."""
    found, why = find_beginning(_recorded(*_THREE), "same", _held(begin))
    assert (after, True) == (found, "retention" in why)


def test_records_of_a_topic_made_again_are_others() -> None:
    """Whatever stands at the offsets now, nobody has read it."""
    found, why = find_beginning(_recorded(*_THREE), "same", _held(0, "id-2"))
    assert (3, True) == (found, "no more" in why)
    assert 3 == find_beginning(_recorded(*_THREE), "same", {})[0]


def test_a_run_over_files_is_not_computed_again() -> None:
    """What comes after it is."""
    run = _batch(2, BatchRun(name="june", inputs=()))
    found, why = find_beginning(_recorded(_batch(1), run, _batch(3)), "same", _held(0))
    assert (2, True) == (found, "june" in why)


def test_a_run_over_ranges_is_computed_again_while_kafka_has_them() -> None:
    """Its ranges and the topic's id are in its name and checksum."""
    given = RunInput(partition=0, name="orders[0] 5..9", checksum="id-1 5 9")
    run = _batch(1, BatchRun(name="june", inputs=(given,)))
    assert (0, "") == find_beginning(_recorded(run), "same", _held(5))
    assert 1 == find_beginning(_recorded(run), "same", _held(6))[0]
    assert 1 == find_beginning(_recorded(run), "same", _held(5, "id-2"))[0]


def test_what_ran_as_another_version_is_not() -> None:
    """Only the newest stretch in which the file was in force."""
    versions = (("same", 0), ("other", 1), ("same", 2))
    recorded = _recorded(*_THREE, versions=versions)
    found, why = find_beginning(recorded, "same", _held(0))
    assert (2, True) == (found, "version 2" in why)
    with pytest.raises(ConfigurationError) as raised:
        find_beginning(recorded, "third", _held(0))
    assert "REPLAY_OTHER_VERSION" == raised.value.code


def test_somebody_may_ask_for_less() -> None:
    """The latest of all reasons counts."""
    assert 2 == find_beginning(_recorded(*_THREE), "same", _held(5), since=2)[0]
    assert 3 == find_beginning(_recorded(*_THREE), "same", _held(25), since=2)[0]
