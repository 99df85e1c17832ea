"""What the driver's own reader gives of a log, and when it gives nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
)

from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.spark_jobs.source import record_reader
from tallyweir.spark_jobs.source.event_columns import (
    KEY,
    OFFSET,
    PLACE,
    TIMESTAMP,
    VALUE,
)
from tallyweir.spark_jobs.source.record_reader import RecordReader, TooManyBytesError
from tallyweir.spark_jobs.source.source_places import SourcePlaces

_BYTES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class _Message:
    """Stands for what the client hands over."""

    at: int
    in_partition: int = 0
    code: int | None = None
    content: bytes | None = b"value"
    time: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 1_500)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.in_partition

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def key(self) -> bytes | None:
        return b"key"

    def value(self) -> bytes | None:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return self.time


@dataclass(slots=True)
class _Broker:
    """Stands for the client: what it hands over, one list for each call."""

    answers: list[list[_Message]]
    begins: list[dict[int, int]] = field(default_factory=list)
    closed: int = 0
    config: Mapping[str, object] = field(default_factory=dict)

    def made(self, config: Mapping[str, object]) -> _Broker:
        self.config = config
        return self

    def assign(self, partitions: Sequence[Any]) -> None:
        self.begins.append({one.partition: one.offset for one in partitions})

    def consume(self, _: int, timeout: float) -> list[_Message]:
        assert timeout >= 0
        return self.answers.pop(0)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> _Broker:
    """Stand for every client that is made."""
    stand_in = _Broker([])
    monkeypatch.setattr(record_reader, "Consumer", stand_in.made)
    return stand_in


@pytest.fixture
def reader() -> RecordReader:
    """Read the topic ``t``."""
    places = SourcePlaces(("t",))
    return RecordReader("b:1", group="g", places=places, bytes_max=_BYTES_MAX)


def _range(begin: int, until: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(
        topic_partition=TopicPartition("t", partition),
        from_offset=begin,
        until_offset=until,
    )


def _end(offset: int, partition: int = 0) -> _Message:
    code = KafkaError._PARTITION_EOF
    return _Message(offset, partition, code)


def _offsets(reader: RecordReader, *ranges: OffsetRange) -> list[tuple[int, int]]:
    read = reader.read(ranges)
    assert read is not None
    rows = read.rows.to_pydict()
    assert read.records == len(rows[OFFSET])
    return list(zip(rows[PLACE], rows[OFFSET], strict=True))


def test_rows_have_what_a_task_needs(broker: _Broker, reader: RecordReader) -> None:
    """The columns are those of a frame; a record without a time has Kafka's own."""
    timeless = (TIMESTAMP_NOT_AVAILABLE, 0)
    broker.answers = [[_Message(7), _Message(8, content=None, time=timeless)]]
    read = reader.read([_range(7, 9)])
    assert read is not None
    rows = read.rows.set_column(
        2, TIMESTAMP, read.rows.column(TIMESTAMP).cast("int64")
    ).to_pydict()
    assert rows == {
        PLACE: [0, 0],
        OFFSET: [7, 8],
        TIMESTAMP: [1_500_000, -1_000],
        KEY: [b"key", b"key"],
        VALUE: [b"value", None],
    }


def test_the_client_is_asked_for_what_a_range_relies_on(
    broker: _Broker, reader: RecordReader
) -> None:
    """Nothing that was not committed, nothing skipped, and every end of a log told."""
    broker.answers = [[_Message(0)]]
    assert [(0, 0)] == _offsets(reader, _range(0, 1))
    relied_on = {
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    assert relied_on.items() <= broker.config.items()


def test_what_came_ahead_is_the_next_batchs(
    broker: _Broker, reader: RecordReader
) -> None:
    """Nothing is asked for twice, and nobody goes anywhere."""
    broker.answers = [
        [_Message(0), _Message(1), _Message(5, 1), _Message(2)],
        [_Message(3), _Message(6, 1)],
    ]
    assert _offsets(reader, _range(0, 2), _range(5, 6, 1)) == [(0, 0), (0, 1), (1, 5)]
    assert _offsets(reader, _range(2, 4), _range(6, 7, 1)) == [(0, 2), (0, 3), (1, 6)]
    assert ([{0: 0, 1: 5}], 0) == (broker.begins, broker.closed)


def test_an_end_of_the_log_ends_a_range_without_records(
    broker: _Broker, reader: RecordReader
) -> None:
    """Markers of transactions, and what was aborted, take offsets too."""
    broker.answers = [[_Message(0), _end(3)], [_end(2, 1)]]
    assert _offsets(reader, _range(0, 3), _range(0, 2, 1)) == [(0, 0)]


def test_an_end_before_the_range_ends_nothing(
    broker: _Broker, reader: RecordReader
) -> None:
    """It was told before the rest was there."""
    broker.answers = [[_Message(0), _end(1)], [_Message(1)]]
    assert _offsets(reader, _range(0, 2)) == [(0, 0), (0, 1)]


def test_a_later_record_ends_a_range(broker: _Broker, reader: RecordReader) -> None:
    """The log has been compacted between; the record waits."""
    broker.answers = [[_Message(0), _Message(9)]]
    assert _offsets(reader, _range(0, 5)) == [(0, 0)]
    assert _offsets(reader, _range(5, 10)) == [(0, 9)]


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param([(0, 1, 0)], id="back"),
        pytest.param([(9, 10, 0)], id="ahead"),
        pytest.param([(1, 2, 0), (0, 1, 1)], id="one partition more"),
    ],
)
def test_other_ranges_are_gone_to_with_a_client_of_their_own(
    broker: _Broker, reader: RecordReader, ranges: list[tuple[int, int, int]]
) -> None:
    """What the former one was sent ahead is none of theirs."""
    broker.answers = [[_Message(0), _Message(1), _Message(2)]]
    assert _offsets(reader, _range(0, 1)) == [(0, 0)]
    broker.answers = [[_Message(begin, part) for begin, _, part in ranges]]
    wanted = [(part, begin) for begin, _, part in ranges]
    assert _offsets(reader, *(_range(*one) for one in ranges)) == wanted
    assert (2, 1) == (len(broker.begins), broker.closed)
    assert broker.begins[-1] == {part: begin for begin, _, part in ranges}


def test_an_error_leaves_the_batch_to_spark(
    broker: _Broker, reader: RecordReader
) -> None:
    """And the next call begins anew."""
    gone = KafkaError._AUTO_OFFSET_RESET
    broker.answers = [[_Message(0), _Message(1, code=gone)]]
    assert reader.read([_range(0, 2)]) is None
    broker.answers = [[_Message(0), _Message(1)]]
    assert _offsets(reader, _range(0, 2)) == [(0, 0), (0, 1)]
    assert (2, 1) == (len(broker.begins), broker.closed)


def test_a_client_that_fails_leaves_the_batch_to_spark(
    broker: _Broker, reader: RecordReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that cannot even be asked."""

    def refuse(*_: object, **__: object) -> list[_Message]:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    monkeypatch.setattr(_Broker, "consume", refuse)
    assert reader.read([_range(0, 2)]) is None
    assert broker.closed == 1


def test_records_that_do_not_come_are_not_waited_for_for_ever(
    broker: _Broker, reader: RecordReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark says why they do not."""
    clock: Iterator[float] = iter([0.0, 0.0, record_reader.TIMEOUT_S + 0.1])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    broker.answers = [[], []]
    assert reader.read([_range(0, 2)]) is None


def test_too_many_bytes_are_told(broker: _Broker, reader: RecordReader) -> None:
    """Before the rest of them is here as well."""
    broker.answers = [[_Message(0, content=b"x" * _BYTES_MAX)]]
    with pytest.raises(TooManyBytesError):
        reader.read([_range(0, 2)])
    assert broker.closed == 1


def test_batches_do_not_add_up_to_too_many_bytes(
    broker: _Broker, reader: RecordReader
) -> None:
    """What was given is not here any more."""
    for at in range(3):
        broker.answers = [[_Message(at, content=b"x" * (_BYTES_MAX // 2))]]
        assert _offsets(reader, _range(at, at + 1)) == [(0, at)]


def _more(reader: RecordReader, offsets_max: int = 10) -> list[OffsetRange] | None:
    ranges = reader.await_more(1.0, offsets_max=offsets_max)
    return None if ranges is None else list(ranges)


def test_whatever_has_come_is_the_next_range(
    broker: _Broker, reader: RecordReader
) -> None:
    """Of each partition, as in Spark's plan, also of those without anything new."""
    broker.answers = [[_Message(0), _Message(1)], [_Message(2)], [_Message(3)]]
    assert _offsets(reader, _range(0, 1), _range(7, 7, 1)) == [(0, 0)]
    assert _more(reader) == [_range(1, 4), _range(7, 7, 1)]
    assert _offsets(reader, _range(1, 4), _range(7, 7, 1)) == [(0, 1), (0, 2), (0, 3)]
    assert len(broker.begins) == 1


def test_nothing_new_is_no_range(broker: _Broker, reader: RecordReader) -> None:
    """And an end of the log that is where it was is nothing new."""
    broker.answers = [[_Message(0)], [_end(1)], []]
    assert _offsets(reader, _range(0, 1)) == [(0, 0)]
    assert _more(reader) == []


def test_an_aborted_transaction_is_a_range_without_records(
    broker: _Broker, reader: RecordReader
) -> None:
    """The position moves over it, as it does with Spark's."""
    broker.answers = [[_Message(0)], [_end(5)], []]
    assert _offsets(reader, _range(0, 1)) == [(0, 0)]
    assert _more(reader) == [_range(1, 5)]
    assert _offsets(reader, _range(1, 5)) == []


def test_more_than_a_small_batch_is_left_to_spark(
    broker: _Broker, reader: RecordReader
) -> None:
    """By offsets, and by bytes."""
    broker.answers = [[_Message(0)], [_Message(1)], [_Message(2)]]
    assert _offsets(reader, _range(0, 1)) == [(0, 0)]
    assert _more(reader, offsets_max=1) is None
    broker.answers = [[_Message(3, content=b"x" * _BYTES_MAX)], []]
    assert _more(reader) is None


def test_nothing_is_awaited_before_anything_was_read(reader: RecordReader) -> None:
    """Nobody knows where to begin."""
    assert _more(reader) is None


def test_an_error_ends_what_is_read_ahead(
    broker: _Broker, reader: RecordReader
) -> None:
    """Spark plans the next batch, from where the last one ended."""
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    broker.answers = [[_Message(0)], [_Message(1, code=unknown)], []]
    assert _offsets(reader, _range(0, 1)) == [(0, 0)]
    assert _more(reader) is None
    assert (1, None) == (broker.closed, _more(reader))
