"""Kafka as a Spark source, with the options that exactly-once depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from tallyweir.schemas.pipeline import HeaderId, Pipeline
from tallyweir.sinks.kafka_settings import spark_options
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings

#: The most offsets of one partition that one task reads, and holds in memory; Spark
#: splits larger ranges.
TASK_RECORDS_MAX = 125_000

#: The columns of Spark's Kafka source, headers included.
_RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


def committed_records(bootstrap: str) -> dict[str, str]:
    """Return the options with which Spark reads the committed records of a topic.

    They exclude the events of aborted producer transactions.
    """
    return {**spark_options(bootstrap), "kafka.isolation.level": "read_committed"}


def group_prefix(pipeline: str) -> str:
    """Return the prefix of the names of a pipeline's consumer groups."""
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
        settings: Say where Kafka is and how much a batch may read.
        pipeline: The pipeline that reads the topics.
        starts: The first offset to read of every partition, as Postgres holds it.
    """
    options = {
        **_event_records(settings, pipeline),
        # A topic's name cannot contain a comma.
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
        settings: Say where Kafka is.
        pipeline: The pipeline that reads.
        ranges: The ranges to read.
        topic_ids: Kafka's id of each topic.
        with_headers: Whether to read headers even if the pipeline does not use them.
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
        # Spark keeps the consumers of earlier ranges for five minutes, by group, with
        # all records that they have fetched ahead. By default each read has its own
        # group, and then no range can use records fetched for the one before. A topic
        # that was created again has other records at these offsets, so its id makes
        # another group.
        "kafka.group.id": f"{group_prefix(pipeline.name)}-ranges-{ids}",
    }
    if with_headers:
        options["includeHeaders"] = "true"
    return spark.read.format("kafka").options(**options).load()


def _by_topic(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets in the JSON form of Spark's Kafka source."""
    written: dict[str, dict[str, int]] = {}
    for place, offset in offsets.items():
        written.setdefault(place.topic, {})[str(place.partition)] = offset
    return json.dumps(written)


def _event_records(settings: DriverSettings, pipeline: Pipeline) -> dict[str, str]:
    return {
        **committed_records(settings.kafka_bootstrap),
        # Fail, and so stop the pipeline, if retention has deleted a range.
        "failOnDataLoss": "true",
        "includeHeaders": str(isinstance(pipeline.source.event_id, HeaderId)).lower(),
        "groupIdPrefix": group_prefix(pipeline.name),
        # A task asks only for offsets that exist, so it never needs to wait. But at the
        # end of a log the consumer asks for more in advance, and the broker delays
        # that answer by this time. The delay also holds up Spark's next request on the
        # connection: the log's start and end, after each fetch from each partition.
        "kafka.fetch.max.wait.ms": "0",
        # Each call of the consumer checks its connections and metrics, whether it
        # returns 500 records (the default) or all fetched records.
        "kafka.max.poll.records": "20000",
        "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
        "kafka.receive.buffer.bytes": str(1024 * 1024),
        "maxRecordsPerPartition": str(TASK_RECORDS_MAX),
    }


def empty_batch(spark: SparkSession) -> DataFrame:
    """Return an empty batch with which Spark's analyser can check a pipeline."""
    return spark.createDataFrame([], _RECORD_SCHEMA)
