"""The Postgres types in which values of Spark are stored."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

POSTGRES_TYPES: Mapping[type[DataType], str] = {
    BinaryType: "bytea",
    BooleanType: "boolean",
    ByteType: "smallint",
    DateType: "date",
    DecimalType: "numeric",
    DoubleType: "double precision",
    FloatType: "real",
    IntegerType: "integer",
    LongType: "bigint",
    ShortType: "smallint",
    StringType: "text",
    TimestampNTZType: "timestamp without time zone",
    TimestampType: "timestamp with time zone",
    # Nested values are written as JSON.
    ArrayType: "jsonb",
    MapType: "jsonb",
    StructType: "jsonb",
}
