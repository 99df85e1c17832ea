"""Digests of result rows: their number, and the sum of their hashes in any order.

The publish transaction stores the digest of the rows that it writes, and ``verify``
computes it again from the rows in the table. A row that was changed, removed or added
by hand changes the sum.

A row is hashed as text: its columns by name, each cast to the pipeline's type for it,
without those that are NULL. So neither the order of a table's columns nor a column that
a later version adds changes the digest of earlier rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import Column, type_name
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements

_SQL = load_statements("tallyweir.sinks.postgres.tables", "row_digest.sql")
_COMMA = sql.SQL(", ")

#: Postgres passes at most a hundred arguments to a function.
_COLUMNS_AT_ONCE = 90


#: What the ledger calls the digests of an output's table and of its revisions.
RESULTS = "results"
REVISIONS = "revisions"


@dataclass(frozen=True, slots=True)
class RowDigest:
    """The digest of some rows of one table."""

    rows: int = 0
    #: The sum of 64-bit hashes, which may itself need more than 64 bits.
    total: int = 0

    def __add__(self, other: Self) -> RowDigest:
        return RowDigest(self.rows + other.rows, self.total + other.total)

    def __sub__(self, other: Self) -> RowDigest:
        return RowDigest(self.rows - other.rows, self.total - other.total)

    def as_json(self) -> dict[str, int]:
        return {"rows": self.rows, "sum": self.total}

    @classmethod
    def from_json(cls, kept: Mapping[str, int]) -> RowDigest:
        return cls(kept["rows"], kept["sum"])


#: The values that a row is hashed from: each column, with its source in the statement.
Sources = Iterable[tuple[Column, sql.Composable]]


def stored(columns: Iterable[Column]) -> Sources:
    """Take the values of a table's own columns."""
    return [(column, sql.Identifier(column.name)) for column in columns]


#: The text that is hashed for types whose own text depends on a connection's settings.
_TEXTS = {
    "bytea": sql.SQL("encode({}, 'hex')"),
    "date": sql.SQL("encode(date_send({}), 'hex')"),
    "double precision": sql.SQL("encode(float8send({}), 'hex')"),
    "real": sql.SQL("encode(float4send({}), 'hex')"),
    "timestamp with time zone": sql.SQL("encode(timestamptz_send({}), 'hex')"),
    "timestamp without time zone": sql.SQL("encode(timestamp_send({}), 'hex')"),
}
_TEXT = sql.SQL("{}::text")


def row_text(sources: Sources) -> sql.Composed:
    """Write a row for people; the text depends on the connection's settings."""
    return _joined(sources, {})


def row_hash(sources: Sources) -> sql.Composed:
    """Hash a row to a ``bigint``, the same over every connection.

    Servers whose processors have the same byte order compute the same hash.
    """
    # Columns may have different collations, and Postgres would not choose between them.
    return sql.SQL('hashtextextended({} COLLATE "C", 0)').format(
        _joined(sources, _TEXTS)
    )


def _joined(sources: Sources, texts: Mapping[str, sql.SQL]) -> sql.Composed:
    parts = [
        sql.SQL("{} || {}").format(
            sql.Literal(f"{column.name}="),
            texts.get(column.postgres_type, _TEXT).format(
                sql.SQL("({})::{}").format(source, type_name(column.postgres_type))
            ),
        )
        for column, source in sorted(sources, key=lambda given: given[0].name)
    ]
    groups = [
        sql.SQL("nullif(concat_ws(chr(31), {}), '')").format(
            _COMMA.join(parts[first : first + _COLUMNS_AT_ONCE])
        )
        for first in range(0, len(parts), _COLUMNS_AT_ONCE)
    ]
    return sql.SQL("concat_ws(chr(31), {})").format(_COMMA.join(groups))


def change_digested(
    connection: psycopg.Connection[TupleRow],
    change: sql.Composable,
    sources: Sources,
    values: Mapping[str, object],
) -> RowDigest:
    """Execute a statement that changes rows; return the digest of the changed rows.

    Args:
        connection: A connection in the publish transaction.
        change: An INSERT, UPDATE or DELETE without a RETURNING clause.
        sources: The values that are hashed of each row, as RETURNING reads them.
        values: The statement's parameters.
    """
    statement = _SQL["digested"].format(change=change, hash=row_hash(sources))
    rows, total = fetch_row(connection, statement, values)
    return RowDigest(rows, int(total))
