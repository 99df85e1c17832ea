"""Counters and distributions that a pipeline takes from columns of its events.

Spark runs a transform in its workers, and may run it again, so a transform cannot
report figures itself. It adds a column, and the task that stages the events adds that
column up. The figures travel with the task's vote and are committed with the batch,
like those of functions on keyed state.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, NumericType, StructType

from tallyweir.schemas.pipeline.events.reported import Reported
from tallyweir.sinks.protocol.distributions import distribution_of
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.measures import Measures
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass


def check_reported(reported: Reported, schema: StructType) -> None:
    """Refuse figures from columns that no event has, or that cannot be added up.

    Raises:
        ConfigurationError: ``REPORTED_COLUMN``.
    """
    types = {field.name: field.dataType for field in schema.fields}
    for name in sorted(reported.columns):
        kind = types.get(name)
        if isinstance(kind, NumericType | BooleanType):
            continue
        found = "no event has it" if kind is None else f"it is {kind.simpleString()}"
        raise ConfigurationError(
            "REPORTED_COLUMN",
            saw=f"The pipeline takes figures from the column {name}, and {found}.",
            why="Figures can only be added up from numbers and booleans.",
            fix="Name a field of the event, or a column that the transform adds.",
        )


def figures_of(events: ClassifiedEvents, reported: Reported) -> Measures:
    """Add up what the committed events of a task report.

    A value that is null or not finite counts nothing; a counter also ignores values
    below zero.
    """
    committed = pa.array(events.is_class(EventClass.COMMITTED))

    def values(column: str) -> pa.Array:
        found = events.array(column).filter(committed)
        if pa.types.is_boolean(found.type):
            found = found.cast(pa.int8())
        found = found.cast(pa.float64())
        return found.filter(pc.is_finite(found)).drop_null()

    counts = {}
    for name, column in reported.counters.items():
        found = values(column)
        counts[name] = pc.sum(found.filter(pc.greater_equal(found, 0))).as_py() or 0
    return Measures(
        counts=counts,
        distributions={
            name: distribution_of(values(column).to_pylist())
            for name, column in reported.distributions.items()
        },
    )
