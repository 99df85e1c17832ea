"""Kafka as a Spark source, with the options that exactly-once depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from sinks.kafka_settings import spark_options
from sinks.protocol.offsets import OffsetRange, TopicPartition
from spark_jobs.engine.settings import DriverSettings
from spark_jobs.pipeline import HeaderId, Pipeline

#: Offsets of one partition that one task reads at most, and holds in memory; more of
#: them are split.
TASK_RECORDS_MAX = 125_000

#: The columns of Spark's Kafka source, headers included.
_RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


def committed_records(bootstrap: str) -> dict[str, str]:
    """Name the options by which Spark reads what counts of a topic.

    Events of producer transactions that were aborted do not.
    """
    return {**spark_options(bootstrap), "kafka.isolation.level": "read_committed"}


def group_prefix(pipeline: str) -> str:
    """Return what the names of a pipeline's consumer groups begin with."""
    return f"tallyweir-{pipeline}"


def read_stream(
    spark: SparkSession,
    settings: DriverSettings,
    pipeline: Pipeline,
    starts: Mapping[TopicPartition, int],
) -> DataFrame:
    """Read a pipeline's topics as one stream.

    Args:
        spark: The session.
        settings: Where Kafka is, and how much a batch may read.
        pipeline: Whose topics.
        starts: The first offset of every partition, as Postgres holds it.
    """
    options = {
        **_event_records(settings, pipeline),
        # No name of a topic has a comma.
        "subscribe": ",".join(pipeline.source.topics),
        "startingOffsets": _by_topic(starts),
        "maxOffsetsPerTrigger": str(settings.batch_offsets_max),
    }
    return spark.readStream.format("kafka").options(**options).load()


def read_ranges(  # noqa: PLR0913 - each is needed
    spark: SparkSession,
    settings: DriverSettings,
    pipeline: Pipeline,
    ranges: Sequence[OffsetRange],
    *,
    topic_ids: Mapping[str, str],
    with_headers: bool = False,
) -> DataFrame:
    """Read ranges, at most one for each partition.

    Args:
        spark: The session.
        settings: Where Kafka is.
        pipeline: For whom.
        ranges: Of which records.
        topic_ids: Topic to Kafka's id of it.
        with_headers: Whether to read headers that the pipeline has no use for.
    """
    partitions: dict[str, list[int]] = {}
    for one in ranges:
        place = one.topic_partition
        partitions.setdefault(place.topic, []).append(place.partition)
    ids = "-".join(topic_ids[topic] for topic in sorted(partitions))
    options = {
        **_event_records(settings, pipeline),
        "assign": json.dumps(partitions),
        "startingOffsets": _by_topic(
            {one.topic_partition: one.from_offset for one in ranges}
        ),
        "endingOffsets": _by_topic(
            {one.topic_partition: one.until_offset for one in ranges}
        ),
        # Spark keeps, by group, the consumers of former ranges for five minutes, and
        # all that they have fetched ahead. By default each read has a group of its own:
        # no range takes over what was fetched for the one before. A topic that was
        # made again has records of its own at these offsets, so it has another group.
        "kafka.group.id": f"{group_prefix(pipeline.name)}-ranges-{ids}",
    }
    if with_headers:
        options["includeHeaders"] = "true"
    return spark.read.format("kafka").options(**options).load()


def _by_topic(offsets: Mapping[TopicPartition, int]) -> str:
    """Write offsets as Spark's Kafka source reads them."""
    written: dict[str, dict[str, int]] = {}
    for place, offset in offsets.items():
        written.setdefault(place.topic, {})[str(place.partition)] = offset
    return json.dumps(written)


def _event_records(settings: DriverSettings, pipeline: Pipeline) -> dict[str, str]:
    return {
        **committed_records(settings.kafka_bootstrap),
        # A range that retention has deleted stops the pipeline.
        "failOnDataLoss": "true",
        "includeHeaders": str(isinstance(pipeline.source.event_id, HeaderId)).lower(),
        "groupIdPrefix": group_prefix(pipeline.name),
        # A task asks for offsets that are there already, so there is nothing to wait
        # for. Yet the consumer asks for more ahead, at the end of a log; the broker
        # lets that wait so long, and with it what Spark asks next on the connection:
        # where the log begins and ends, after each fetch from each partition.
        "kafka.fetch.max.wait.ms": "0",
        # Each call of the consumer looks at its connections and metrics, whether it
        # returns 500 records, as it does by default, or all that were fetched.
        "kafka.max.poll.records": "20000",
        "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
        "kafka.receive.buffer.bytes": str(1024 * 1024),
        "maxRecordsPerPartition": str(TASK_RECORDS_MAX),
    }


def empty_batch(spark: SparkSession) -> DataFrame:
    """Return no records, for Spark's analyser to check a pipeline by."""
    return spark.createDataFrame([], _RECORD_SCHEMA)
