"""The lookups of a pipeline, as small DataFrames that are refreshed by age."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from tallyweir.schemas.pipeline.checks.durations import in_microseconds
from tallyweir.schemas.pipeline.events.enrichment import Enrichment, names_in_ledger
from tallyweir.sinks.postgres.server.branch_names import HOME
from tallyweir.sinks.postgres.tables.lookup_table import read_lookup_table
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.frame.enrichment_join import LookupCopy
from tallyweir.spark_jobs.frame.lookup_rows import (
    VALID_FROM,
    VALID_UNTIL,
    check_rows,
    copied_columns,
    key_column,
)
from tallyweir.spark_jobs.frame.lookup_topic import LookupTopic
from tallyweir.spark_jobs.frame.time_slices import cut_into_slices

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
            bootstrap = settings.kafka_bootstrap
            return LookupTopic(spark, bootstrap, enrichment, pipeline_file).read
        return _table_reader(settings, enrichment)

    return [reader(one) for one in enrichments]


def _table_reader(settings: DriverSettings, enrichment: Enrichment) -> Reader:
    assert enrichment.table is not None
    table = enrichment.table
    dsn = (
        settings.home_dsn
        if enrichment.database == HOME
        else settings.databases[enrichment.database]
    )

    def read() -> tuple[pa.Table, str]:
        copy = read_lookup_table(
            dsn,
            table,
            copied_columns(enrichment),
            endless=(VALID_FROM, VALID_UNTIL),
        )
        return copy.rows, copy.version

    return read
