"""The Spark types of looked-up columns, chosen by what Postgres returned."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampType,
)

from sinks.protocol.errors import ConfigurationError
from spark_jobs.lookups import _spark_type


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, "a"], StringType()),
        ([True], BooleanType()),
        ([1], LongType()),
        ([0.5], DoubleType()),
        ([Decimal("1.5")], DecimalType(38, 18)),
        ([date(2024, 1, 1)], DateType()),
        ([datetime(2024, 1, 1, tzinfo=UTC)], TimestampType()),
        # A table without rows gives nulls, whatever their type.
        ([], StringType()),
        ([None], StringType()),
    ],
)
def test_a_column_has_the_type_of_its_values(
    values: list[object], kind: DataType
) -> None:
    """Booleans are no numbers and instants no dates, although Python says so."""
    assert kind == _spark_type(values)


def test_a_type_that_events_cannot_carry_is_refused() -> None:
    """The error names the type and the way round it."""
    with pytest.raises(ConfigurationError) as caught:
        _spark_type([None, [1, 2]])
    assert "LOOKUP_TYPE" == caught.value.code
    assert "list" in caught.value.saw
