"""The lookup tables of a pipeline, as small DataFrames that are refreshed by age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sinks.postgres.lookup_table import read_lookup_table
from sinks.protocol.errors import ConfigurationError
from spark_jobs.pipeline.durations import in_microseconds
from spark_jobs.pipeline.enrichment import Enrichment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    frame: DataFrame
    version: str
    loaded_at_us: int


class Lookups:
    """Copies of the pipeline's lookup tables, none older than its refresh interval.

    Age is judged by the database's clock at the planning of each batch, so a batch
    has one version of each table, which its ledger row names.
    """

    def __init__(
        self, spark: SparkSession, dsn: str, enrichments: Sequence[Enrichment]
    ) -> None:
        self._spark = spark
        self._dsn = dsn
        self._enrichments = enrichments
        self._loaded: dict[int, _Loaded] = {}

    def refresh(self, now_us: int) -> None:
        """Read again every table whose copy is too old.

        Raises:
            ConfigurationError: A table cannot be used; see ``read_lookup_table``.
            RetryableError: The server is unreachable.
        """
        for number, enrichment in enumerate(self._enrichments):
            loaded = self._loaded.get(number)
            age_us = None if loaded is None else now_us - loaded.loaded_at_us
            limit_us = in_microseconds(enrichment.refresh)
            if age_us is None or age_us >= limit_us:
                self._loaded[number] = self._load(enrichment, now_us)

    @property
    def frames(self) -> list[DataFrame]:
        """One per enrichment: its keys as ``tallyweir_on_N``, then its new columns."""
        return [self._loaded[n].frame for n in range(len(self._enrichments))]

    @property
    def versions(self) -> dict[str, str]:
        """The version of each table, by its name."""
        return {
            enrichment.table: self._loaded[number].version
            for number, enrichment in enumerate(self._enrichments)
        }

    def _load(self, enrichment: Enrichment, now_us: int) -> _Loaded:
        table = read_lookup_table(
            self._dsn,
            enrichment.table,
            keys=list(enrichment.on.values()),
            select=list(enrichment.select.values()),
        )
        names = [
            *(f"tallyweir_on_{number}" for number in range(len(enrichment.on))),
            *enrichment.select,
        ]
        rows = list(table.rows)
        fields = [
            StructField(name, _spark_type([row[position] for row in rows]))
            for position, name in enumerate(names)
        ]
        return _Loaded(
            frame=self._spark.createDataFrame(rows, StructType(fields)),
            version=table.version,
            loaded_at_us=now_us,
        )


_SPARK_TYPES: Mapping[type, DataType] = {
    bool: BooleanType(),
    bytes: BinaryType(),
    date: DateType(),
    datetime: TimestampType(),
    Decimal: DecimalType(38, 18),
    float: DoubleType(),
    int: LongType(),
    str: StringType(),
}


def _spark_type(values: Sequence[object]) -> DataType:
    """Choose the type of a column by its first value; an empty one is text."""
    for value in values:
        if value is not None:
            kind = _SPARK_TYPES.get(type(value))
            if kind is not None:
                return kind
            raise ConfigurationError(
                "LOOKUP_TYPE",
                saw=f"A lookup table has a column of {type(value).__name__}.",
                why="Events cannot be enriched with that type.",
                fix="Cast it in a view, to text for example, and look up the view.",
            )
    return StringType()
