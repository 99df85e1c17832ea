"""Reads the records of small batches in the driver's own process.

A job of Spark that reads some hundred records takes longer to be planned, started and
collected than all else that is done with them. This consumer stays where the stream is
and is sent what is new as soon as it is there, so a small batch mostly finds its
records here.

What it gives of a range of offsets is what Spark's source gives: committed records
only, those of a partition in the order of their offsets.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from sinks.kafka_settings import client_config
from sinks.protocol.offsets import OffsetRange, TopicPartition
from spark_jobs.source.event_columns import KEY, OFFSET, PLACE, TIMESTAMP, VALUE
from spark_jobs.source.source_places import SourcePlaces

#: Seconds until a range that is not here is left to Spark, which says what is wrong.
TIMEOUT_S = 5.0
#: Seconds until the clock is looked at again while records are awaited.
_LOOK_S = 0.1
#: What the client gives in one call at most.
_CALL_MAX = 1_000_000
#: What waits here for the next batches at most.
_WAITING_KIB_MAX = 16 * 1024
#: Kafka's own sign for a record without a time, which Spark takes for an instant.
_NO_TIME_MS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecords:
    """The records of some ranges.

    Attributes:
        rows: With the columns that are there before a payload is looked at.
        records: How many came, counted one by one as the consumer handed them over.
    """

    rows: pa.Table
    records: int


class TooManyBytesError(Exception):
    """The records that were asked for would take too much memory."""


class RecordReader:
    """Follows a stream's partitions. Not for use by several threads at once.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        group: A name for the broker's access rules. Nothing is committed under it,
            and it has no members.
        places: What the records' positions are noted under.
        bytes_max: Of the keys and values that wait here, about.
    """

    # Invariant: of a partition that is followed, ``_waiting`` and what is still to come
    # are together every committed record from ``_next`` on, each of them once.

    def __init__(
        self, bootstrap: str, *, group: str, places: SourcePlaces, bytes_max: int
    ) -> None:
        self._config = {
            **client_config(bootstrap),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # Nothing is skipped: an offset that is not there any more is an error.
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            # What is missing before the end of a log was never committed.
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": _WAITING_KIB_MAX,
            "log_level": 0,
        }
        self._places = places
        self._bytes_max = bytes_max
        self._consumer: Consumer | None = None
        #: Where the next ranges must begin, for the consumer to stay as it is.
        self._next: dict[TopicPartition, int] = {}
        #: Up to where all that is committed has come.
        self._here: dict[TopicPartition, int] = {}
        self._waiting: defaultdict[TopicPartition, list[Message]] = defaultdict(list)
        self._came = self._bytes = 0

    def read(self, ranges: Sequence[OffsetRange]) -> ReadRecords | None:
        """Read ranges, at most one for each partition.

        Returns:
            All committed records of them. None if they cannot be had here, for
            whatever reason: the next call begins anew.

        Raises:
            TooManyBytesError: Before all of them were here.
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
        """Wait for something behind the ranges that were read last.

        Returns:
            The range of each partition that is here, as planned ranges are; none if
            nothing has come. None if they are more offsets, or nobody has read yet, or
            what comes cannot be had here.
        """
        if self._consumer is None:
            return None
        try:
            came = self._consumer.consume(1, timeout=timeout_s)
            # Whatever else is here by now, too.
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

        What the consumer was sent ahead goes with it, so a later one, which may begin
        before that, can never take it for its own.
        """
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._next.clear()
        self._here.clear()
        self._waiting.clear()
        self._came = self._bytes = 0

    def _follow(self, ranges: Sequence[OffsetRange]) -> None:
        """Go to where the ranges begin, unless the consumer stands there."""
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
        """Wait until all records are here; tell whether they came."""
        assert self._consumer is not None, "it follows the ranges"
        deadline = time.monotonic() + TIMEOUT_S
        while missing := sum(
            max(0, one.until_offset - self._here[one.topic_partition]) for one in ranges
        ):
            if time.monotonic() > deadline:
                return False
            # Returns once it has so many, which is all of them in most cases.
            for message in self._consumer.consume(
                min(missing, _CALL_MAX), timeout=_LOOK_S
            ):
                if not self._note(message):
                    return False
            if self._bytes > self._bytes_max:
                raise TooManyBytesError
        return True

    def _note(self, message: Message) -> bool:
        """Keep a record, or note the end of a log; tell whether it was one of them."""
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
            # Some pass by themselves; Spark tells about those that do not.
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
        # A number for each record, as Spark sends it to tasks.
        places = [numbers[topic, partition] for topic, partition, _ in positions]
        return pa.table(
            {
                PLACE: pa.array(places, pa.int64()),
                OFFSET: pa.array([offset for _, _, offset in positions], pa.int64()),
                TIMESTAMP: pa.array(times_ms * 1_000, pa.timestamp("us", tz="UTC")),
                KEY: pa.array([one.key() for one in messages], pa.binary()),
                VALUE: pa.array([one.value() for one in messages], pa.binary()),
            }
        )


def _position(message: Message) -> tuple[str, int, int]:
    """Return topic, partition and offset, which everything that comes has."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        # An error of the client as a whole.
        raise KafkaException(message.error())
    return topic, partition, offset


def _length(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _time_ms(message: Message) -> int:
    kind, time_ms = message.timestamp()
    return _NO_TIME_MS if kind == TIMESTAMP_NOT_AVAILABLE else time_ms
