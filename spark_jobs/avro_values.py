"""Decodes Avro values in the JVM, by the schema id that each begins with."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

from schemas.contract import Contract
from schemas.wire_format import HEADER_BYTES, frame


def decode_value(contract: Contract, writers: Mapping[int, Contract]) -> Column:
    """Decode the column ``value``; null, or null fields, where that fails.

    Args:
        contract: What the values are read as.
        writers: Contracts that they may be written by, by schema id; ``contract``
            is one of them.
    """
    body = F.substring(F.col("value"), HEADER_BYTES + 1, 2**31 - 1)
    written_by = F.substring(F.col("value"), 1, HEADER_BYTES)
    decoded: Column | None = None
    for schema_id, writer in writers.items():
        options = {"mode": "PERMISSIVE"}
        if schema_id != contract.schema_id:
            options["avroSchema"] = contract.text
        event = from_avro(body, writer.text, options)
        is_writer = written_by == F.lit(frame(schema_id, b""))
        decoded = (
            F.when(is_writer, event)
            if decoded is None
            else decoded.when(is_writer, event)
        )
    assert decoded is not None, "the contract itself is always among the writers"
    return decoded
