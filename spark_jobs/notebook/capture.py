"""Captures a slice: some records as they are in Kafka, with lookups and tables.

A capture writes nothing to Kafka or to a database, and joins no consumer group. So it
does not affect a driver of the pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.schemas.pipeline import Pipeline, definition_hash
from tallyweir.sinks.kafka_admin import DRIVER_TIMEOUT_S, KafkaAdmin
from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition, check_topic_identity
from tallyweir.spark_jobs.batch.file_source import FileSource
from tallyweir.spark_jobs.batch.kafka_ranges import check_held
from tallyweir.spark_jobs.batches.prepared_pipeline import PipelineFiles
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_session import start_spark_session
from tallyweir.spark_jobs.frame.lookup_rows import copied_columns
from tallyweir.spark_jobs.frame.lookups import lookup_readers
from tallyweir.spark_jobs.notebook.captured_slice import (
    MANIFEST,
    RECORDS,
    CapturedLookup,
    CapturedRange,
    SliceManifest,
)
from tallyweir.spark_jobs.source.kafka_source import read_ranges
from tallyweir.spark_jobs.tables.scratch_home import read_result_tables

#: One process holds a slice in memory, and a person looks at it.
OFFSETS_MAX = 500_000

_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCapture:
    """Captures slices of one pipeline.

    Attributes:
        settings: Settings of the driver.
        files: The pipeline, and the files that it names.
        directory: Directory for the slice; made when missing, and must have no slice
            yet.
    """

    settings: DriverSettings
    files: PipelineFiles
    directory: Path

    def newest(self, records: int) -> SliceManifest:
        """Capture at most this many of the newest records of each partition.

        Raises:
            ConfigurationError: ``SLICE_EMPTY``, or as ``ranges``.
            RetryableError: As ``ranges``.
        """
        held = self._admin().read_positions()
        ranges = [
            OffsetRange(
                topic_partition=place,
                from_offset=max(
                    position.log_start_offset, position.log_end_offset - records
                ),
                until_offset=position.log_end_offset,
            )
            for place, position in sorted(held.items())
            if position.log_end_offset > position.log_start_offset
        ]
        if not ranges:
            raise self._empty()
        return self._capture(ranges, held)

    def ranges(self, ranges: Sequence[OffsetRange]) -> SliceManifest:
        """Capture the records of some ranges.

        Raises:
            ConfigurationError: ``RANGE_NOT_THERE``, ``SLICE_TOO_LARGE``,
                ``SLICE_EXISTS``, or an error of the pipeline's lookups.
            RetryableError: A server does not answer.
        """
        held = self._admin().read_positions()
        check_held(ranges, held)
        return self._capture(ranges, held)

    def of_files(self, source: FileSource, run: BatchRun) -> SliceManifest:
        """Capture the rows of files, as the given batch run would read them.

        Raises:
            ConfigurationError: As ``ranges``, or ``INPUT_CHANGED``.
        """
        self._check(sum(source.until_offsets))
        spark = self._start()
        raw = source.read(spark).withColumn("topic", F.lit(run.topic))
        records = raw.toArrow()
        source.check_unchanged()
        ranges = [
            OffsetRange(
                topic_partition=TopicPartition(run.topic, given.partition),
                from_offset=0,
                until_offset=until_offset,
            )
            for given, until_offset in zip(
                source.inputs, source.until_offsets, strict=True
            )
        ]
        return self._write(spark, records, ranges, {run.topic: run.name}, run)

    @property
    def _pipeline(self) -> Pipeline:
        return self.files.pipeline

    def _empty(self) -> ConfigurationError:
        return ConfigurationError(
            "SLICE_EMPTY",
            saw=f"There is no record to capture for {self._pipeline.name}.",
            why="A notebook shows how a pipeline treats records.",
            fix="Send some records, for example with tallyweir emit, ask for other "
            "offsets, or name a file with rows.",
        )

    def _admin(self) -> KafkaAdmin:
        topics = self._pipeline.source.topics
        return KafkaAdmin(
            self.settings.kafka_bootstrap, *topics, timeout_s=DRIVER_TIMEOUT_S
        )

    def _capture(
        self,
        ranges: Sequence[OffsetRange],
        held: Mapping[TopicPartition, BrokerPosition],
    ) -> SliceManifest:
        self._check(sum(one.length for one in ranges))
        ids = {place.topic: position.topic_id for place, position in held.items()}
        spark = self._start()
        records = self._read(spark, ranges, ids).toArrow()
        # A topic that was recreated meanwhile has other records at these offsets.
        check_topic_identity(ids, self._admin().read_topic_ids())
        return self._write(spark, records, ranges, ids, None)

    def _check(self, offsets: int) -> None:
        if (self.directory / MANIFEST).exists():
            raise ConfigurationError(
                "SLICE_EXISTS",
                saw=f"{self.directory} already holds a slice.",
                why="A notebook in the directory may depend on it.",
                fix=f"Open it with tallyweir notebook {self.directory}, or name "
                "another directory with --output.",
            )
        if offsets > OFFSETS_MAX:
            raise ConfigurationError(
                "SLICE_TOO_LARGE",
                saw=f"The slice would cover {offsets:,} offsets.",
                why="One process holds the slice in memory; use tallyweir batch for "
                "more.",
                fix=f"Ask for at most {OFFSETS_MAX:,} in all.",
            )

    def _start(self) -> SparkSession:
        return start_spark_session(
            self.settings, name=f"{self._pipeline.name}-notebook"
        )

    def _read(
        self,
        spark: SparkSession,
        ranges: Sequence[OffsetRange],
        topic_ids: Mapping[str, str],
    ) -> DataFrame:
        frames = [
            read_ranges(
                spark,
                self.settings,
                self._pipeline,
                list(of_topic),
                topic_ids=topic_ids,
                with_headers=True,
            )
            for _, of_topic in groupby(
                sorted(ranges, key=lambda one: one.topic_partition),
                key=lambda one: one.topic_partition.topic,
            )
        ]
        return reduce(DataFrame.unionByName, frames).select(*_COLUMNS, "headers")

    def _write(
        self,
        spark: SparkSession,
        records: pa.Table,
        ranges: Sequence[OffsetRange],
        topic_ids: dict[str, str],
        run: BatchRun | None,
    ) -> SliceManifest:
        if not records.num_rows:
            raise self._empty()
        tables = read_result_tables(self.settings, self._pipeline)
        lookups = self._read_lookups(spark)
        self.directory.mkdir(parents=True, exist_ok=True)
        order = [(name, "ascending") for name in ("topic", "partition", "offset")]
        records = records.sort_by(order)
        written = {RECORDS: records} | {one.file: rows for one, rows in lookups}
        for file, rows in written.items():
            pq.write_table(rows, self.directory / file, compression="zstd")
        manifest = SliceManifest(
            pipeline=self._pipeline.name,
            pipeline_file=os.path.relpath(self.files.path, self.directory),
            definition_hash=definition_hash(self._pipeline),
            captured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            ranges=tuple(
                CapturedRange(
                    topic=one.topic_partition.topic,
                    topic_id=topic_ids[one.topic_partition.topic],
                    partition=one.topic_partition.partition,
                    from_offset=one.from_offset,
                    until_offset=one.until_offset,
                    records=_count(records, one.topic_partition),
                )
                for one in ranges
            ),
            lookups=tuple(one for one, _ in lookups),
            tables=tables,
            run=run,
        )
        # Write it last: an incomplete capture is no slice.
        manifest.write(self.directory)
        return manifest

    def _read_lookups(
        self, spark: SparkSession
    ) -> list[tuple[CapturedLookup, pa.Table]]:
        enrichments = self._pipeline.enrich
        readers = lookup_readers(spark, self.settings, enrichments, self.files.path)
        captured = []
        for number, (enrichment, read) in enumerate(
            zip(enrichments, readers, strict=True)
        ):
            rows, version = read()
            lookup = CapturedLookup(
                label=enrichment.label,
                columns=copied_columns(enrichment),
                version=version,
                file=f"lookup_{number}.parquet",
            )
            captured.append((lookup, rows))
        return captured


def _count(records: pa.Table, place: TopicPartition) -> int:
    is_there = pc.and_(
        pc.equal(records["topic"], place.topic),
        pc.equal(records["partition"], place.partition),
    )
    return int(pc.sum(is_there).as_py() or 0)
