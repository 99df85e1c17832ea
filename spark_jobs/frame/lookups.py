"""The lookups of a pipeline, as small DataFrames that are refreshed by age.

A lookup is a table, or the newest record of each key in a compacted topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.formats.debezium_envelope import OP
from tallyweir.schemas.pipeline.checks.durations import in_microseconds
from tallyweir.schemas.pipeline.checks.problems import raise_if_any
from tallyweir.schemas.pipeline.columns import find_lookup_problems
from tallyweir.schemas.pipeline.events.enrichment import (
    KAFKA_KEY,
    Enrichment,
    names_in_ledger,
)
from tallyweir.schemas.registered_contract import Pin
from tallyweir.sinks.kafka_admin import DRIVER_TIMEOUT_S, KafkaAdmin
from tallyweir.sinks.postgres.tables.lookup_table import (
    LOOKUP_BYTES_MAX,
    LOOKUP_ROWS_MAX,
    read_lookup_table,
    too_large,
)
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_failure import (
    SPARK_FAILURES,
    what_failed_and_why,
)
from tallyweir.spark_jobs.frame.decoded_values import with_fields
from tallyweir.spark_jobs.frame.enrichment_join import LookupCopy, cut_into_slices
from tallyweir.spark_jobs.frame.lookup_rows import (
    VALID_FROM,
    VALID_UNTIL,
    check_rows,
    copied_columns,
    key_column,
    without_deleted,
)
from tallyweir.spark_jobs.registry.known_schemas import KnownSchemas, open_client
from tallyweir.spark_jobs.source.event_columns import KEY, OFFSET, VALUE
from tallyweir.spark_jobs.source.kafka_source import committed_records, offsets_json

#: Reads the present rows, and the name of their version for the ledger.
Reader: TypeAlias = Callable[[], tuple[pa.Table, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    copy: LookupCopy
    version: str
    loaded_at_us: int


class Lookups:
    """Copies of the pipeline's lookups, never older than their refresh intervals.

    The database's clock at the planning of each batch decides the age. So a batch has
    one version of each lookup, which its ledger row names.

    Args:
        spark: The session.
        enrichments: The pipeline's enrichments.
        readers: One for each enrichment.
    """

    def __init__(
        self,
        spark: SparkSession,
        enrichments: Sequence[Enrichment],
        readers: Sequence[Reader],
    ) -> None:
        self._spark = spark
        self._sources = tuple(zip(enrichments, readers, strict=True))
        self._loaded: dict[int, _Loaded] = {}

    def refresh(self, now_us: int) -> None:
        """Read again all lookups whose copies are too old.

        Raises:
            ConfigurationError: A lookup cannot be used; see ``read_lookup_table``,
                ``LookupTopic.read`` and ``check_rows``.
            RetryableError: A server is unreachable.
        """
        for number, (enrichment, read) in enumerate(self._sources):
            loaded = self._loaded.get(number)
            age_us = None if loaded is None else now_us - loaded.loaded_at_us
            if age_us is None or age_us >= in_microseconds(enrichment.refresh):
                rows, version = read()
                self._loaded[number] = _Loaded(
                    copy=self._copy(check_rows(rows, enrichment), enrichment),
                    version=version,
                    loaded_at_us=now_us,
                )

    @property
    def copies(self) -> list[LookupCopy]:
        """The copies, one for each enrichment."""
        return [self._loaded[n].copy for n in range(len(self._sources))]

    @property
    def versions(self) -> dict[str, str]:
        """The version of each lookup, by its name in the ledger."""
        names = names_in_ledger([enrichment for enrichment, _ in self._sources])
        return {name: self._loaded[number].version for number, name in enumerate(names)}

    def _copy(self, rows: pa.Table, enrichment: Enrichment) -> LookupCopy:
        if enrichment.as_of is None:
            return LookupCopy(rows=self._spark.createDataFrame(rows), slices=None)
        columns = [key_column(number) for number in range(len(enrichment.on))]
        keys = rows.group_by(columns).aggregate([]).num_rows
        cut, slices = cut_into_slices(rows, VALID_FROM, VALID_UNTIL, keys=keys)
        return LookupCopy(rows=self._spark.createDataFrame(cut), slices=slices)


def lookup_readers(
    spark: SparkSession,
    settings: DriverSettings,
    enrichments: Sequence[Enrichment],
    pipeline_file: Path,
) -> list[Reader]:
    """Return a reader for each of a pipeline's lookups.

    Raises:
        ContractError: A lookup topic's contract cannot be used.
        PipelineError: That contract lacks a field.
    """

    def reader(enrichment: Enrichment) -> Reader:
        if enrichment.topic is not None:
            return LookupTopic(spark, settings, enrichment, pipeline_file).read
        return _table_reader(settings, enrichment)

    return [reader(one) for one in enrichments]


def _table_reader(settings: DriverSettings, enrichment: Enrichment) -> Reader:
    assert enrichment.table is not None
    table, dsn = enrichment.table, settings.dsns[enrichment.database]

    def read() -> tuple[pa.Table, str]:
        copy = read_lookup_table(
            dsn,
            table,
            copied_columns(enrichment),
            endless=(VALID_FROM, VALID_UNTIL),
        )
        return copy.rows, copy.version

    return read


_PARTITION = "tallyweir_partition"


class LookupTopic:
    """A lookup topic, read from its beginning to its end at the time of reading.

    Args:
        spark: The session that reads it.
        settings: The addresses of Kafka and of the home database.
        enrichment: The enrichment, which names the topic and its fields.
        pipeline_file: The pipeline file; the path of the contract starts at its folder.

    Raises:
        ContractError: The contract cannot be used.
        PipelineError: The contract lacks a field that the enrichment names.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: DriverSettings,
        enrichment: Enrichment,
        pipeline_file: Path,
    ) -> None:
        assert enrichment.topic is not None
        reference = enrichment.reference
        self._spark = spark
        self._bootstrap = settings.kafka_bootstrap
        self._enrichment = enrichment
        self._topic = enrichment.topic
        self._admin = KafkaAdmin(
            self._bootstrap, enrichment.topic, timeout_s=DRIVER_TIMEOUT_S
        )
        self._known_schemas: KnownSchemas | None = None
        if Pin.of(reference) is None:
            self._contracts = load_event_contracts([reference], pipeline_file)
        else:
            self._known_schemas = KnownSchemas(
                reference, settings.home_dsn, pipeline_file, open_client
            )
            self._contracts = self._known_schemas.contracts
        raise_if_any(
            "Enrichment", find_lookup_problems(enrichment, self._contracts.fields)
        )

    def read(self) -> tuple[pa.Table, str]:
        """Return the newest record of each key, and the offsets that were read.

        Only records of committed transactions count. A record without a value removes
        its key, and so does the deletion of a row where records are changes. If a topic
        has got more partitions, a key may be in two of them; then the record with the
        newer Kafka timestamp counts.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``, ``LOOKUP_TOO_LARGE``, or
                ``LOOKUP_UNREADABLE``: a key's newest record does not decode, or a
                truncation may be older or newer than records of other partitions.
            RetryableError: ``KAFKA_UNREACHABLE``, ``LOOKUP_READ_FAILED``, or as
                ``KnownSchemas.resolve``.
        """
        positions = self._admin.read_positions()
        try:
            newest = self._newest(positions).persist()
            try:
                rows = self._collect_known(newest)
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
        if self._enrichment.envelope is not None:
            values = rows.column(VALUE).combine_chunks()
            decoded = self._contracts.decoder([OP]).decode(values)
            rows = without_deleted(
                rows, decoded, self._enrichment, partitions=len(positions)
            )
        self._check_decodable(rows)
        return rows.select(list(copied_columns(self._enrichment))), _version(positions)

    def _newest(self, positions: Mapping[TopicPartition, BrokerPosition]) -> DataFrame:
        starts = {place: one.log_start_offset for place, one in positions.items()}
        ends = {place: one.log_end_offset for place, one in positions.items()}
        raw = (
            self._spark.read.format("kafka")
            .options(
                **committed_records(self._bootstrap),
                subscribe=self._topic,
                startingOffsets=offsets_json(starts),
                endingOffsets=offsets_json(ends),
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

    def _collect_known(self, newest: DataFrame) -> pa.Table:
        """Collect the rows once every schema that they name has been asked for."""
        known = self._known_schemas
        if known is None:
            return self._collect(newest)
        known.forget_absent()
        while True:
            self._contracts = known.contracts
            rows = self._collect(newest)
            values = rows.column(VALUE).combine_chunks()
            unknown = self._contracts.decoder(()).decode(values).unknown_ids
            wanted = self._contracts.wanted_schemas(unknown)
            if not wanted:
                return rows
            known.resolve(wanted)

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
            error = self._contracts.diagnose(value)
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
