"""Ranges of a topic's offsets as the input of a run: a backfill from Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from tallyweir.schemas.pipeline import Pipeline
from tallyweir.sinks.kafka_admin import DRIVER_TIMEOUT_S, KafkaAdmin
from tallyweir.sinks.protocol.batch_run import BatchRun, RunInput
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition, check_topic_identity
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.source.kafka_source import read_ranges

_RANGE = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,18})-(\d{1,18})")
#: The form of a range in an input's name, and the number of parts of its checksum.
_INPUT = re.compile(r"([A-Za-z0-9._-]{1,249})\[(\d{1,9})\] (\d{1,18})\.\.(\d{1,18})")
_PARTS_OF_CHECKSUM = 3


def parse_ranges(texts: Sequence[str]) -> list[OffsetRange]:
    """Read ranges as people write them: ``TOPIC:PARTITION:FROM-UNTIL``.

    Raises:
        ConfigurationError: ``RANGE_MALFORMED``.
    """
    ranges = []
    for text in texts:
        match = _RANGE.fullmatch(text)
        if match is None or int(match[3]) >= int(match[4]):
            raise _malformed(f"--offsets is {text!r}.")
        ranges.append(
            OffsetRange(
                topic_partition=TopicPartition(match[1], int(match[2])),
                from_offset=int(match[3]),
                until_offset=int(match[4]),
            )
        )
    places = {one.topic_partition for one in ranges}
    if len(places) < len(ranges) or len({place.topic for place in places}) > 1:
        raise _malformed("The ranges name several topics, or one partition twice.")
    return sorted(ranges, key=lambda one: one.topic_partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRanges:
    """Ranges of one topic, at most one for each partition; see ``FileSource``."""

    settings: DriverSettings
    pipeline: Pipeline
    admin: KafkaAdmin
    ranges: tuple[OffsetRange, ...]
    topic_id: str

    @property
    def inputs(self) -> tuple[RunInput, ...]:
        return tuple(
            RunInput(
                partition=one.topic_partition.partition,
                name=str(one),
                checksum=f"{self.topic_id} {one.from_offset} {one.until_offset}",
            )
            for one in self.ranges
        )

    @property
    def until_offsets(self) -> tuple[int, ...]:
        return tuple(one.until_offset for one in self.ranges)

    def read(self, spark: SparkSession) -> DataFrame:
        topic = self.ranges[0].topic_partition.topic
        return read_ranges(
            spark,
            self.settings,
            self.pipeline,
            self.ranges,
            topic_ids={topic: self.topic_id},
        )

    def check_unchanged(self) -> None:
        topic = self.ranges[0].topic_partition.topic
        check_topic_identity({topic: self.topic_id}, self.admin.read_topic_ids())


def ranges_of(run: BatchRun) -> list[OffsetRange]:
    """Return the ranges that a run has read; none if it has read files."""
    found = []
    for given in run.inputs:
        match = _INPUT.fullmatch(given.name)
        if match is None or given.checksum.count(" ") != _PARTS_OF_CHECKSUM - 1:
            return []
        found.append(
            OffsetRange(
                topic_partition=TopicPartition(match[1], int(match[2])),
                from_offset=int(match[3]),
                until_offset=int(match[4]),
            )
        )
    return found


def topic_id_of(run: BatchRun) -> str:
    """Return Kafka's id of the topic whose ranges a run has read."""
    return run.inputs[0].checksum.split(" ")[0]


def open_ranges(
    settings: DriverSettings, pipeline: Pipeline, ranges: Sequence[OffsetRange]
) -> KafkaRanges:
    """Make sure that the broker holds all of the ranges.

    Raises:
        ConfigurationError: ``RANGE_NOT_THERE``, or as ``KafkaAdmin``.
        RetryableError: The broker did not answer.
    """
    admin = KafkaAdmin(
        settings.kafka_bootstrap,
        ranges[0].topic_partition.topic,
        timeout_s=DRIVER_TIMEOUT_S,
    )
    held = admin.read_positions()
    check_held(ranges, held)
    (topic_id,) = {position.topic_id for position in held.values()}
    return KafkaRanges(
        settings=settings,
        pipeline=pipeline,
        admin=admin,
        ranges=tuple(ranges),
        topic_id=topic_id,
    )


def check_held(
    ranges: Sequence[OffsetRange], held: Mapping[TopicPartition, BrokerPosition]
) -> None:
    """Make sure that a broker holds all of the ranges.

    Raises:
        ConfigurationError: ``RANGE_NOT_THERE``.
    """
    for wanted in ranges:
        position = held.get(wanted.topic_partition)
        if (
            position is None
            or wanted.from_offset < position.log_start_offset
            or wanted.until_offset > position.log_end_offset
        ):
            there = (
                "has no such partition"
                if position is None
                else f"holds {position.log_start_offset}..{position.log_end_offset}"
            )
            raise ConfigurationError(
                "RANGE_NOT_THERE",
                saw=f"{wanted} was requested; the broker {there}.",
                why="A run over a smaller range would look complete.",
                fix="Ask for what the broker holds.",
            )


def _malformed(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "RANGE_MALFORMED",
        saw=saw,
        why="A range is half-open; a run takes one range for each partition of one "
        "topic.",
        fix="Write it as TOPIC:PARTITION:FROM-UNTIL, such as orders:0:0-1000.",
    )
