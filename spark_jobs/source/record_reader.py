"""Fetch the records of small batches in the driver's own process, undecoded.

Spark takes longer to plan, start and collect a job that reads some hundred records than
all other work on them takes. This consumer follows the stream, and the broker sends it
new records at once. So a small batch usually finds its records here.

For a range of offsets it returns the same as Spark's source: only committed records,
those of a partition in the order of their offsets.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tallyweir.sinks.kafka_settings import client_config
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.spark_jobs.source.event_columns import (
    KEY,
    OFFSET,
    PLACE,
    TIMESTAMP,
    VALUE,
)
from tallyweir.spark_jobs.source.source_places import SourcePlaces

#: After this many seconds the reader leaves a range to Spark, which reports the cause.
TIMEOUT_S = 5.0
#: Seconds between two checks of the clock while the reader waits for records.
_LOOK_S = 0.1
#: The most records that the client returns in one call.
_CALL_MAX = 1_000_000
#: The most KiB that the client fetches ahead for the next batches.
_WAITING_KIB_MAX = 16 * 1024
#: Kafka's own mark for a record without a time, which Spark takes for an instant.
_NO_TIME_MS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecords:
    """The records of some ranges.

    Attributes:
        rows: The records, with the columns that exist before decoding.
        records: The number of records, counted as the consumer returned them.
    """

    rows: pa.Table
    records: int


class TooManyBytesError(Exception):
    """The requested records would take too much memory."""


class RecordReader:
    """Follows a stream's partitions. Only one thread at a time may use it.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        group: A name for the broker's access rules. The reader commits nothing under
            it, and the group has no members.
        places: Numbers the places of the records.
        bytes_max: About the most bytes of keys and values that may wait here.
    """

    # Invariant: for each followed partition, ``_waiting`` and the records still to
    # arrive are together every committed record from ``_next`` on, each exactly once.

    def __init__(
        self, bootstrap: str, *, group: str, places: SourcePlaces, bytes_max: int
    ) -> None:
        self._config = {
            **client_config(bootstrap),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # Skip nothing: an offset that no longer exists is an error.
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            # Offsets missing before the end of a log hold no committed record.
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": _WAITING_KIB_MAX,
            "log_level": 0,
        }
        self._places = places
        self._bytes_max = bytes_max
        self._consumer: Consumer | None = None
        #: Where the next ranges must begin, so that the consumer can go on.
        self._next: dict[TopicPartition, int] = {}
        #: The offsets up to which all committed records have arrived.
        self._here: dict[TopicPartition, int] = {}
        self._waiting: defaultdict[TopicPartition, list[Message]] = defaultdict(list)
        self._came = self._bytes = 0

    def read(self, ranges: Sequence[OffsetRange]) -> ReadRecords | None:
        """Read ranges, at most one for each partition.

        Returns:
            All committed records in the ranges. None if the reader cannot get them, for
            whatever reason; the next call then starts with a new consumer.

        Raises:
            TooManyBytesError: Too many bytes arrived before the ranges were complete.
        """
        try:
            self._follow(ranges)
            arrived = self._await(ranges)
        except KafkaException:
            arrived = False
        except TooManyBytesError:
            self.stand_by()
            raise
        if not arrived:
            self.stand_by()
            return None
        messages = [message for one in ranges for message in self._take(one)]
        left = sum(map(len, self._waiting.values()))
        came, self._came = self._came - left, left
        self._bytes -= sum(map(_length, messages))
        return ReadRecords(rows=self._rows(messages), records=came)

    def await_more(
        self, timeout_s: float, *, offsets_max: int
    ) -> Sequence[OffsetRange] | None:
        """Wait for records after the ranges that were read last.

        Returns:
            For each partition the range that has arrived, in the form of planned
            ranges; empty if no record has arrived. None if the ranges are too large, if
            no range was read yet, or if the reader cannot get the records.
        """
        if self._consumer is None:
            return None
        try:
            came = self._consumer.consume(1, timeout=timeout_s)
            # Take all other records that have arrived by now.
            came += self._consumer.consume(min(offsets_max, _CALL_MAX), timeout=0)
            is_well = all(self._note(message) for message in came)
        except KafkaException:
            is_well = False
        if not is_well:
            self.stand_by()
            return None
        ranges = [
            OffsetRange(
                topic_partition=place,
                from_offset=begin,
                until_offset=self._here[place],
            )
            for place, begin in sorted(self._next.items())
        ]
        lengths = sum(one.length for one in ranges)
        if lengths > offsets_max or self._bytes > self._bytes_max:
            return None
        return ranges if lengths else []

    def stand_by(self) -> None:
        """Follow nothing until the next call of ``read``.

        This drops the records that the consumer fetched ahead. So a later consumer,
        which may begin before them, can never take them for its own.
        """
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._next.clear()
        self._here.clear()
        self._waiting.clear()
        self._came = self._bytes = 0

    def _follow(self, ranges: Sequence[OffsetRange]) -> None:
        """Move the consumer to the start of the ranges, unless it is already there."""
        begins = {one.topic_partition: one.from_offset for one in ranges}
        if begins == self._next:
            return
        self.stand_by()
        self._consumer = Consumer(self._config)
        self._consumer.assign(
            [
                KafkaTopicPartition(place.topic, place.partition, offset)
                for place, offset in begins.items()
            ]
        )
        self._next, self._here = begins, dict(begins)

    def _await(self, ranges: Sequence[OffsetRange]) -> bool:
        """Wait until all records have arrived; return whether they have."""
        assert self._consumer is not None, "it follows the ranges"
        deadline = time.monotonic() + TIMEOUT_S
        while missing := sum(
            max(0, one.until_offset - self._here[one.topic_partition]) for one in ranges
        ):
            if time.monotonic() > deadline:
                return False
            # The call returns once it has this many records, in most cases all.
            for message in self._consumer.consume(
                min(missing, _CALL_MAX), timeout=_LOOK_S
            ):
                if not self._note(message):
                    return False
            if self._bytes > self._bytes_max:
                raise TooManyBytesError
        return True

    def _note(self, message: Message) -> bool:
        """Keep a record or note the end of a log; return False for an error."""
        topic, partition, offset = _position(message)
        place = TopicPartition(topic, partition)
        error = message.error()
        if error is None:
            self._waiting[place].append(message)
            self._here[place] = offset + 1
            self._came += 1
            self._bytes += _length(message)
            return True
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            # Some errors pass by themselves; Spark reports those that do not.
            return False
        self._here[place] = max(self._here[place], offset)
        return True

    def _take(self, covered: OffsetRange) -> list[Message]:
        place, until = covered.topic_partition, covered.until_offset
        waiting = self._waiting[place]
        count = bisect_left(waiting, until, key=lambda message: _position(message)[2])
        taken = waiting[:count]
        del waiting[:count]
        self._next[place] = until
        return taken

    def _rows(self, messages: Sequence[Message]) -> pa.Table:
        positions = [_position(message) for message in messages]
        numbers = {
            (topic, partition): self._places.number(TopicPartition(topic, partition))
            for topic, partition in {(topic, part) for topic, part, _ in positions}
        }
        times_ms = np.array([_time_ms(one) for one in messages], np.int64)
        # One number for each record, as Spark sends it to tasks.
        places = [numbers[topic, partition] for topic, partition, _ in positions]
        return pa.table(
            {
                PLACE: pa.array(places, pa.int64()),
                OFFSET: pa.array([offset for _, _, offset in positions], pa.int64()),
                TIMESTAMP: pa.array(_micros(times_ms), pa.timestamp("us", tz="UTC")),
                KEY: pa.array([one.key() for one in messages], pa.binary()),
                VALUE: pa.array([one.value() for one in messages], pa.binary()),
            }
        )


def _position(message: Message) -> tuple[str, int, int]:
    """Return topic, partition and offset of a record or of the end of a log."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        # Only an error of the client as a whole lacks them.
        raise KafkaException(message.error())
    return topic, partition, offset


def _length(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _micros(times_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Multiply times without leaving their type's range, as a wrong unit would."""
    limit = np.iinfo(np.int64).max // 1_000
    return np.clip(times_ms, -limit, limit) * 1_000


def _time_ms(message: Message) -> int:
    kind, time_ms = message.timestamp()
    return _NO_TIME_MS if kind == TIMESTAMP_NOT_AVAILABLE else time_ms
