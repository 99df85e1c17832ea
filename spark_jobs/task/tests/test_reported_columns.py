"""Figures that are taken from columns of the committed events."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BooleanType,
    DecimalType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from tallyweir.schemas.pipeline import PipelineError, Reported
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.measures import distribution_of
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.task_measures import check_reported, figures_of


def _events(column: pa.Array, classes: list[EventClass]) -> ClassifiedEvents:
    return ClassifiedEvents(
        table=pa.table({"c": column}),
        classes=np.array(classes, dtype=np.uint8),
        event_time_us=np.zeros(len(classes), dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("values", "total"),
    [
        (pa.array([True, False, None, True, True]), 1),
        (pa.array([5, 7, None, 100, 100], pa.int32()), 12),
        (pa.array([0.5, math.nan, math.inf, 1.0, 1.0]), 0.5),
        (pa.array([Decimal("1.50"), Decimal("2.25"), None, None, None]), 3.75),
        (pa.array([-3, 4, None, 0, 0]), 4),
        (pa.array([None] * 5, pa.int64()), 0),
    ],
)
def test_a_counter_adds_the_committed_events_up(values: pa.Array, total: float) -> None:
    """What is no number that can be added, or would let it fall, counts nothing."""
    classes = [EventClass.COMMITTED] * 3 + [EventClass.DEAD, EventClass.DUPLICATE]
    measures = figures_of(_events(values, classes), Reported(counters={"n": "c"}))
    assert {"n": total} == measures.counts


def test_a_distribution_has_the_committed_events_values() -> None:
    """Below zero as well."""
    values = pa.array([-1.5, 4, None, math.nan, 9])
    classes = [*[EventClass.COMMITTED] * 4, EventClass.FILTERED]
    reported = Reported(distributions={"n": "c"})
    measures = figures_of(_events(values, classes), reported)
    assert {"n": distribution_of([-1.5, 4])} == measures.distributions


def test_a_figure_needs_a_column_of_numbers() -> None:
    """Known before anything is read."""
    schema = StructType(
        [
            StructField("text", StringType()),
            StructField("whole", IntegerType()),
            StructField("exact", DecimalType(20, 3)),
            StructField("is_so", BooleanType()),
        ]
    )
    numbers = {"a": "whole", "b": "exact", "c": "is_so"}
    check_reported(Reported(counters=numbers), schema)
    for column, found in (("text", "it is string"), ("none", "no event has it")):
        with pytest.raises(ConfigurationError, match="REPORTED_COLUMN") as caught:
            check_reported(Reported(distributions={"x": column}), schema)
        assert found in caught.value.saw


@pytest.mark.parametrize("name", ["Refunds", "", "a b", "x" * 64])
def test_a_figures_name_is_that_of_a_metric(name: str) -> None:
    """As for functions on keyed state."""
    with pytest.raises(PipelineError):
        Reported(counters={name: "c"})


def test_figures_are_few() -> None:
    """Each batch keeps all of them."""
    with pytest.raises(PipelineError):
        Reported(counters={f"n{number}": "c" for number in range(51)})
