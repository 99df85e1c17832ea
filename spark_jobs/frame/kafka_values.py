"""What Kafka has of records besides their payloads, as columns that Spark computes."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.schemas.pipeline.checks.names import KAFKA_TOPIC
from tallyweir.schemas.pipeline.events.kafka_columns import (
    KAFKA_HEADERS,
    KAFKA_KEY,
    is_header,
)
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP
from tallyweir.sinks.protocol.column_names import HEADER_PREFIX, stored_name
from tallyweir.spark_jobs.source.event_columns import (
    BAD_HEADER,
    KEY,
    PLACE,
    TIMESTAMP,
)
from tallyweir.spark_jobs.source.source_places import SourcePlaces

HEADERS_TYPE = "array<struct<key: string, value: binary>>"
#: Kafka's own mark for a record without a time.
_NO_TIME_MS = -1


def last_header(name: str) -> Column:
    """Return the bytes of the last header with a name, as Java's ``lastHeader``."""
    found = F.filter(F.col("headers"), lambda header: header["key"] == F.lit(name))
    return F.get(found, F.size(found) - 1)["value"]


def header_columns(named: Iterable[str]) -> list[Column]:
    """Return what is made of the headers of raw records, under the names in tables.

    Args:
        named: Names of Kafka's columns, of which some may need headers.

    Returns:
        A column for each, and for values of headers also ``BAD_HEADER``: why one of
        them is no text, or null.
    """
    names = list(named)
    columns = []
    if KAFKA_HEADERS in names:
        columns.append(_as_json(F.col("headers")).alias(KAFKA_HEADERS))
    faults = []
    for name in filter(is_header, names):
        header = name.removeprefix(HEADER_PREFIX)
        value = last_header(header)
        text = F.try_validate_utf8(value.cast("string"))
        columns.append(text.alias(stored_name(name)))
        is_bad = value.isNotNull() & text.isNull()
        faults.append(F.when(is_bad, F.lit(f"The header {header!r} is not UTF-8.")))
    return [*columns, F.coalesce(*faults).alias(BAD_HEADER)] if faults else columns


def usable_columns(named: Iterable[str], places: SourcePlaces) -> dict[str, Column]:
    """Return Kafka's columns as expressions call them, of rows with ``header_columns``.

    Args:
        named: Names of Kafka's columns.
        places: Numbers the places of the records.
    """
    no_time = F.timestamp_millis(F.lit(_NO_TIME_MS))
    known = {
        KAFKA_KEY: F.col(KEY),
        KAFKA_TIMESTAMP: F.nullif(F.col(TIMESTAMP), no_time),
        KAFKA_TOPIC: places.topic_of(F.col(PLACE)),
    }
    return {
        name: known[name] if name in known else F.col(stored_name(name))
        for name in named
    }


def _as_json(headers: Column) -> Column:
    """Write all headers in their order as JSON; bytes that are no text in Base64."""

    def pair(header: Column) -> Column:
        text = F.try_validate_utf8(header["value"].cast("string"))
        is_text = text.isNotNull() & ~F.contains(text, F.lit("\0"))
        name = (F.lit("name"), header["key"])
        return F.when(
            header["value"].isNull() | is_text,
            F.create_map(*name, F.lit("value"), text),
        ).otherwise(F.create_map(*name, F.lit("base64"), F.base64(header["value"])))

    no_headers = F.array().cast(HEADERS_TYPE)
    given = F.transform(F.coalesce(headers, no_headers), pair)
    return F.to_json(given, {"ignoreNullFields": "false"})
