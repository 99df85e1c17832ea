"""Binary COPY of Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import Column, names


def copy_staged(
    connection: psycopg.Connection[TupleRow],
    target: sql.Identifier,
    columns: Sequence[Column],
    rows: pa.Table,
) -> None:
    """Copy rows into a staging table, where nested values are text.

    Raises:
        psycopg.Error: The data does not fit, or the server or connection failed.
    """
    _copy(connection, target, columns, rows, ArrowToPostgresBinaryEncoder(rows.schema))


def copy_results(
    connection: psycopg.Connection[TupleRow],
    target: sql.Identifier,
    columns: Sequence[Column],
    rows: pa.Table,
) -> int:
    """Copy rows into a result table, whose columns have exactly the types given.

    Returns:
        Number of rows that the table has taken.

    Raises:
        psycopg.Error: The table refuses a row, or the server or connection failed.
    """
    encoders = {
        field.name: StringEncoderBuilder.new_with_output(field, Jsonb())
        if column.postgres_type == "jsonb"
        else ArrowToPostgresBinaryEncoder.infer_encoder(field)
        for column, field in zip(columns, rows.schema, strict=True)
    }
    encoder = ArrowToPostgresBinaryEncoder.new_with_encoders(rows.schema, encoders)
    return _copy(connection, target, columns, rows, encoder)


def _copy(
    connection: psycopg.Connection[TupleRow],
    target: sql.Identifier,
    columns: Sequence[Column],
    rows: pa.Table,
    encoder: ArrowToPostgresBinaryEncoder,
) -> int:
    statement = sql.SQL("COPY {} ({}) FROM STDIN WITH (FORMAT BINARY)").format(
        target, names(columns)
    )
    with connection.cursor() as cursor:
        with cursor.copy(statement) as copy:
            copy.write(encoder.write_header())
            for batch in rows.to_batches():
                copy.write(encoder.write_batch(batch))
            copy.write(encoder.finish())
        return cursor.rowcount
