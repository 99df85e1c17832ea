"""What a run reads from: files, or ranges of a topic."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from sinks.protocol.batch_run import RunInput


class RunSource(Protocol):
    """Bounded input, the same at every attempt."""

    @property
    def inputs(self) -> tuple[RunInput, ...]:
        """What it consists of, one for each partition of the run's topic."""
        ...

    @property
    def until_offsets(self) -> tuple[int, ...]:
        """One more than the last position in each input, in their order."""
        ...

    def read(self, spark: SparkSession) -> DataFrame:
        """Return its records, in the columns of Spark's Kafka source."""
        ...

    def check_unchanged(self) -> None:
        """Refuse what was read when the input is no more what it was.

        Raises:
            ConfigurationError: It has changed; nothing was published.
        """
        ...
