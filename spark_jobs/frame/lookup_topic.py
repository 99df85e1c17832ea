"""Read a compacted topic as a lookup: the newest record of each key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.schemas.codec import diagnose
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.pipeline.checks.problems import raise_if_any
from tallyweir.schemas.pipeline.columns import find_lookup_problems
from tallyweir.schemas.pipeline.events.enrichment import KAFKA_KEY, Enrichment
from tallyweir.sinks.postgres.tables.lookup_table import (
    LOOKUP_BYTES_MAX,
    LOOKUP_ROWS_MAX,
    too_large,
)
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.spark_jobs.engine.spark_failure import (
    SPARK_FAILURES,
    what_failed_and_why,
)
from tallyweir.spark_jobs.frame.decoded_values import with_fields
from tallyweir.spark_jobs.frame.lookup_rows import copied_columns
from tallyweir.spark_jobs.source.event_columns import KEY, OFFSET, VALUE
from tallyweir.spark_jobs.source.kafka_admin import KafkaAdmin
from tallyweir.spark_jobs.source.kafka_source import committed_records

_PARTITION = "tallyweir_partition"


class LookupTopic:
    """A lookup topic, read from its beginning to its end at the time of reading.

    Args:
        spark: The session that reads it.
        bootstrap: Kafka's address.
        enrichment: The enrichment, which names the topic and its fields.
        pipeline_file: The pipeline file; the path of the contract starts at its folder.

    Raises:
        ContractError: The contract cannot be used.
        PipelineError: The contract lacks a field that the enrichment names.
    """

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        enrichment: Enrichment,
        pipeline_file: Path,
    ) -> None:
        assert enrichment.topic is not None
        assert enrichment.schema is not None
        self._spark = spark
        self._bootstrap = bootstrap
        self._enrichment = enrichment
        self._topic = enrichment.topic
        self._admin = KafkaAdmin(bootstrap, enrichment.topic)
        self._contracts = load_event_contracts([enrichment.schema], pipeline_file)
        raise_if_any(
            "Enrichment", find_lookup_problems(enrichment, self._contracts.fields)
        )

    def read(self) -> tuple[pa.Table, str]:
        """Return the newest record of each key, and the offsets that were read.

        Only records of committed transactions count. A record without a value removes
        its key. If a topic has got more partitions, a key may be in two of them; then
        the record with the newer Kafka timestamp counts.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``, ``LOOKUP_TOO_LARGE``, or
                ``LOOKUP_UNREADABLE``: a key's newest record does not decode.
            RetryableError: ``KAFKA_UNREACHABLE`` or ``LOOKUP_READ_FAILED``.
        """
        positions = self._admin.read_positions()
        try:
            newest = self._newest(positions).persist()
            try:
                rows = self._collect(newest)
            finally:
                newest.unpersist()
        except SPARK_FAILURES as error:
            raise RetryableError(
                "LOOKUP_READ_FAILED",
                saw=f"Spark could not read {self._enrichment.label}: "
                f"{what_failed_and_why(error)}",
                why="The driver cannot enrich events without it.",
                fix="Nothing to do if it passes; Spark's log has the details.",
            ) from error
        self._check_decodable(rows)
        return rows.select(list(copied_columns(self._enrichment))), _version(positions)

    def _newest(self, positions: Mapping[TopicPartition, BrokerPosition]) -> DataFrame:
        starts = {
            str(one.partition): where.log_start_offset
            for one, where in positions.items()
        }
        ends = {
            str(one.partition): where.log_end_offset for one, where in positions.items()
        }
        raw = (
            self._spark.read.format("kafka")
            .options(
                **committed_records(self._bootstrap),
                subscribe=self._topic,
                startingOffsets=json.dumps({self._topic: starts}),
                endingOffsets=json.dumps({self._topic: ends}),
            )
            .load()
        )
        record = F.struct("offset", "timestamp", "value")
        by_partition = raw.groupBy("key", "partition").agg(
            F.max_by(record, "offset").alias("record")
        )
        newest = by_partition.groupBy("key").agg(
            F.max_by(
                F.struct("partition", "record"),
                F.struct("record.timestamp", "partition"),
            ).alias("newest")
        )
        return newest.select(
            "key", "newest.partition", "newest.record.offset", "newest.record.value"
        ).where(F.col("value").isNotNull())

    def _collect(self, newest: DataFrame) -> pa.Table:
        size = newest.agg(
            F.count("value").alias("rows"),
            F.sum(F.length("value") + F.length("key")).alias("bytes"),
        ).first()
        assert size is not None, "an aggregate without groups gives one row"
        if size["rows"] > LOOKUP_ROWS_MAX:
            raise too_large(self._enrichment.label, f"{LOOKUP_ROWS_MAX:,} keys")
        if (size["bytes"] or 0) > LOOKUP_BYTES_MAX:
            raise too_large(self._enrichment.label, f"{LOOKUP_BYTES_MAX:,} bytes")
        as_read = newest.select(
            F.col("partition").alias(_PARTITION),
            F.col("offset").alias(OFFSET),
            F.col("key").alias(KEY),
            F.col("value").alias(VALUE),
        )
        fields = {
            name: F.col(KEY).cast("string") if field == KAFKA_KEY else F.col(field)
            for name, field in copied_columns(self._enrichment).items()
        }
        decoded = with_fields(as_read, self._contracts)
        return decoded.select(
            *as_read.columns,
            *(column.alias(name) for name, column in fields.items()),
        ).toArrow()

    def _check_decodable(self, rows: pa.Table) -> None:
        """Refuse records that Spark silently reads as nulls or in part."""
        values = rows.column(VALUE).combine_chunks()
        is_event = self._contracts.decoder(()).decode(values).is_event
        is_good = is_event & np.asarray(rows.column(KEY).is_valid())
        for row in np.flatnonzero(~is_good).tolist():
            partition, offset, value = (
                rows.column(name)[row].as_py() for name in (_PARTITION, OFFSET, VALUE)
            )
            error = diagnose(value, self._contracts.writers)
            seen = "it has no key" if error is None else error.detail
            raise ConfigurationError(
                "LOOKUP_UNREADABLE",
                saw=f"The record of {self._topic}[{partition}] at offset {offset} "
                f"cannot be looked up: {seen}.",
                why="Events with its key would be enriched wrongly, or not at all.",
                fix="Send a valid record, or one without a value, under the same "
                "key; or correct the enrichment's schema.",
            )


def _version(positions: Mapping[TopicPartition, BrokerPosition]) -> str:
    ends = (
        f"{one.partition}={where.log_end_offset}"
        for one, where in sorted(positions.items())
    )
    return f"before offsets {' '.join(ends)}"
