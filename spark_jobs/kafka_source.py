"""Kafka as a Spark source, with the options that exactly-once depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from sinks.kafka_settings import spark_options
from sinks.protocol.offsets import TopicPartition
from spark_jobs.pipeline import HeaderId, Pipeline
from spark_jobs.settings import DriverSettings

#: The columns of Spark's Kafka source, headers included.
_RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


def committed_records(bootstrap: str, topic: str) -> dict[str, str]:
    """Name the options by which Spark finds a topic and reads what counts of it.

    Events of producer transactions that were aborted do not.
    """
    return {
        **spark_options(bootstrap),
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
    }


def read_stream(
    spark: SparkSession,
    settings: DriverSettings,
    pipeline: Pipeline,
    starts: Mapping[TopicPartition, int],
) -> DataFrame:
    """Read a pipeline's topic as a stream.

    Args:
        spark: The session.
        settings: Where Kafka is, and how much a batch may read.
        pipeline: Whose topic.
        starts: The first offset of every partition, as Postgres holds it.
    """
    topic = pipeline.source.topic
    first = {str(tp.partition): offset for tp, offset in starts.items()}
    options = {
        **committed_records(settings.kafka_bootstrap, topic),
        "startingOffsets": json.dumps({topic: first}),
        "maxOffsetsPerTrigger": str(settings.batch_offsets_max),
        # A range that retention has deleted stops the pipeline.
        "failOnDataLoss": "true",
        "includeHeaders": str(isinstance(pipeline.source.event_id, HeaderId)).lower(),
        "groupIdPrefix": f"tallyweir-{pipeline.name}",
        # A task asks for offsets that are there already, so there is nothing to wait
        # for; yet at the end of a log the broker lets a fetch wait this long, which
        # by Kafka's default is most of a small batch's time.
        "kafka.fetch.max.wait.ms": "20",
        "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
        "kafka.receive.buffer.bytes": str(1024 * 1024),
    }
    return spark.readStream.format("kafka").options(**options).load()


def empty_batch(spark: SparkSession) -> DataFrame:
    """Return no records, for Spark's analyser to check a pipeline by."""
    return spark.createDataFrame([], _RECORD_SCHEMA)
