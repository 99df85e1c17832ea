"""Kafka as a Spark source, with the options and offsets that exactly-once depends on.

A claim begins to read at the offsets that Postgres holds. Spark writes ``offsets/N`` in
the checkpoint directory before batch N runs. Only that file of Spark's shows the
planned ranges of a batch; Spark does not pass them to ``foreachBatch``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from pyspark.sql import DataFrame, SparkSession

from tallyweir.schemas.pipeline import Pipeline
from tallyweir.schemas.pipeline.columns import reads_headers
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.kafka_settings import spark_options
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.protocol.batch_run import streamed
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import Progress
from tallyweir.sinks.protocol.recovery import StoredPosition, decide_start
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
        "startingOffsets": offsets_json(starts),
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
        "startingOffsets": offsets_json(
            {one.topic_partition: one.from_offset for one in ranges}
        ),
        "endingOffsets": offsets_json(
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


def offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
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
        "includeHeaders": str(reads_headers(pipeline)).lower(),
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


def read_planned_ranges(
    checkpoint: Path, batch_id: int, starts: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """Return the half-open ranges that a batch covers, ordered by partition.

    Args:
        checkpoint: The query's checkpoint directory.
        batch_id: Spark's number of the batch.
        starts: The offsets at which the query begins; the first batch starts there.

    Raises:
        RetryableError: ``CHECKPOINT_GONE``: the directory was deleted while the driver
            ran. The next start makes another.
    """
    until = _read_offsets(checkpoint, batch_id)
    begin = dict(starts) if batch_id == 0 else _read_offsets(checkpoint, batch_id - 1)
    return [
        OffsetRange(
            topic_partition=topic_partition,
            # A partition added since then begins at 0.
            from_offset=begin.get(topic_partition, 0),
            until_offset=until_offset,
        )
        for topic_partition, until_offset in sorted(until.items())
    ]


def _read_offsets(checkpoint: Path, batch_id: int) -> dict[TopicPartition, int]:
    path = checkpoint / "offsets" / str(batch_id)
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError as error:
        raise RetryableError(
            "CHECKPOINT_GONE",
            saw=f"Spark's checkpoint has no entry for batch {batch_id}.",
            why="The directory was deleted while the driver ran.",
            fix="Nothing to do: the next start creates a new one from Postgres.",
        ) from error
    # A version line, a metadata line, then one line per source.
    sources: dict[str, dict[str, int]] = json.loads(lines[2])
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in sources.items()
        for partition, offset in partitions.items()
    }


def read_starts(
    admin: KafkaAdmin,
    home: PostgresHome,
    progress: Progress,
    log: structlog.typing.FilteringBoundLogger,
) -> dict[TopicPartition, int]:
    """Return the first offset to read of each partition; register new partitions.

    Raises:
        TallyweirError: As ``decide_start`` does, or a server is unreachable.
    """
    broker = admin.read_positions()
    stored = streamed(progress.positions)
    starts = decide_start(stored, broker)
    fresh = {
        place: StoredPosition(topic_id=broker[place].topic_id, next_offset=offset)
        for place, offset in starts.items()
        if place not in stored
    }
    if fresh:
        home.register_positions(fresh)
    left = sorted(stored.keys() - starts.keys())
    if left:
        log.warning(
            "topic left out",
            positions={str(place): stored[place].next_offset for place in left},
            fix="Nothing to do if this is intended. If source.topic names the topic "
            "again, the pipeline goes on from these positions.",
        )
    return starts
