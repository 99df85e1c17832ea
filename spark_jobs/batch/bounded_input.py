"""The bounded input of a batch run: files, or ranges of a topic."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tallyweir.sinks.protocol.batch_run import RunInput


class BoundedInput(Protocol):
    """Input with an end, the same at every attempt."""

    @property
    def inputs(self) -> tuple[RunInput, ...]:
        """Its inputs, one for each partition of the run's topic."""
        ...

    @property
    def until_offsets(self) -> tuple[int, ...]:
        """One more than the last offset of each input, in order."""
        ...

    def read(self, spark: SparkSession) -> DataFrame:
        """Return its records, in the columns of Spark's Kafka source."""
        ...

    def check_unchanged(self) -> None:
        """Check that the input has not changed since the run began.

        Raises:
            ConfigurationError: The input has changed; nothing was published.
        """
        ...
