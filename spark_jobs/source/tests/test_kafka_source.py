"""The options that Spark's Kafka source is given: exactly-once depends on them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, cast

from pyspark.sql import SparkSession

from tallyweir.schemas.pipeline import Append, HeaderId, Pipeline, Source
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.source.kafka_source import (
    group_prefix,
    read_ranges,
    read_stream,
)

_PIPELINE = Pipeline(
    name="views",
    source=Source(
        topic="page-views",
        schema="page_view.v1",
        event_id="event_id",
        event_time="viewed_at",
        watermark_delay=timedelta(minutes=1),
    ),
    outputs=(Append(table="views", columns=None),),
)
_SETTINGS = DriverSettings(
    kafka_bootstrap="broker:9092",
    home_dsn="",
    databases={},
    spark_master="local[1]",
    spark_jars="",
    class_archive=None,
    state_directory=Path("state"),
    batch_offsets_max=77,
    driver_memory="1g",
)


@dataclass
class _Reader:
    """Stands in for a session and its reader; keeps what it is told."""

    kept: dict[str, str] = field(default_factory=dict)

    @property
    def readStream(self) -> Self:  # noqa: N802 - Spark's name
        return self

    @property
    def read(self) -> Self:
        return self

    def format(self, name: str) -> Self:
        assert name == "kafka"
        return self

    def options(self, **options: str) -> Self:
        self.kept.update(options)
        return self

    def load(self) -> None:
        return None


def _options(pipeline: Pipeline) -> dict[str, Any]:
    reader = _Reader()
    starts = {TopicPartition("page-views", 10): 5, TopicPartition("page-views", 2): 0}
    read_stream(cast(SparkSession, reader), _SETTINGS, pipeline, starts)
    return reader.kept


def test_the_source_reads_committed_events_and_stops_at_data_loss() -> None:
    """Aborted transactions never count, and nothing is skipped silently."""
    options = _options(_PIPELINE)
    assert ("read_committed", "true") == (
        options["kafka.isolation.level"],
        options["failOnDataLoss"],
    )


def test_the_source_begins_where_postgres_stands() -> None:
    """Every partition is named; none is left to Spark's default, the latest offset."""
    options = _options(_PIPELINE)
    assert {"page-views": {"10": 5, "2": 0}} == json.loads(options["startingOffsets"])
    assert ("page-views", "77", "broker:9092") == (
        options["subscribe"],
        options["maxOffsetsPerTrigger"],
        options["kafka.bootstrap.servers"],
    )


def test_several_topics_are_one_source_each_with_its_own_beginnings() -> None:
    """Partitions of the same number are not mixed up."""
    both = replace(_PIPELINE, source=replace(_PIPELINE.source, topic=("eu", "us")))
    reader = _Reader()
    starts = {TopicPartition("eu", 0): 5, TopicPartition("us", 0): 7}
    read_stream(cast(SparkSession, reader), _SETTINGS, both, starts)
    assert "eu,us" == reader.kept["subscribe"]
    assert {"eu": {"0": 5}, "us": {"0": 7}} == json.loads(
        reader.kept["startingOffsets"]
    )


def test_headers_are_read_only_for_the_id() -> None:
    """They cost a copy of each record's headers."""
    by_header = replace(_PIPELINE.source, event_id=HeaderId(header="ce_id"))
    assert "false" == _options(_PIPELINE)["includeHeaders"]
    assert "true" == _options(replace(_PIPELINE, source=by_header))["includeHeaders"]


def _group(start: int, topic_id: str) -> str:
    reader = _Reader()
    one = OffsetRange(
        topic_partition=TopicPartition("page-views", 0),
        from_offset=start,
        until_offset=start + 100,
    )
    session, ids = cast(SparkSession, reader), {"page-views": topic_id}
    read_ranges(session, _SETTINGS, _PIPELINE, [one], topic_ids=ids)
    return reader.kept["kafka.group.id"]


def test_ranges_one_after_another_share_what_was_fetched() -> None:
    """By their group; else Spark keeps what each has fetched ahead, for minutes."""
    assert _group(0, "first") == _group(100, "first")
    assert _group(0, "first").startswith(group_prefix("views"))


def test_ranges_of_a_topic_made_anew_share_nothing_with_the_former() -> None:
    """What was fetched ahead of the one is at offsets of the other."""
    assert _group(0, "first") != _group(0, "second")
