"""Digests of result rows: how many, and the sum of their hashes in whatever order.

The publish transaction keeps the digest of the rows that it writes, and ``verify``
takes it again of the rows that are there. A row that was changed, removed or added by
hand changes the sum.

A row is hashed as text: its columns by name, each cast to the pipeline's type for it,
and without those that are NULL. So neither the order of a table's columns nor one that
a later version has added changes the digest of former rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.server.columns import Column, type_name
from sinks.postgres.server.statements import load_statements

_SQL = load_statements("sinks.postgres.tables", "row_digest.sql")
_COMMA = sql.SQL(", ")

#: A function takes no more than a hundred arguments.
_COLUMNS_AT_ONCE = 90


#: What the ledger calls the digests of an output's table and of its revisions.
RESULTS = "results"
REVISIONS = "revisions"


@dataclass(frozen=True, slots=True)
class RowDigest:
    """Some rows of one table."""

    rows: int = 0
    #: Of 64-bit hashes, so it is no such number itself.
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


#: What a row is hashed of: a source for each column, as the statement names it.
Sources = Iterable[tuple[Column, sql.Composable]]


def stored(columns: Iterable[Column]) -> Sources:
    """Take the values of a table's own columns."""
    return [(column, sql.Identifier(column.name)) for column in columns]


#: How a value is hashed of a type whose text depends on a session's settings.
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
    """Write a row for people; sessions with other settings write it otherwise."""
    return _joined(sources, {})


def row_hash(sources: Sources) -> sql.Composed:
    """Hash a row to a ``bigint``, alike in every session.

    All servers agree whose processors order bytes alike.
    """
    # Columns may have different collations, between which Postgres would not choose.
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
    """Execute a statement that changes rows; return the digest of what they are then.

    Args:
        connection: In the publish transaction.
        change: An INSERT, UPDATE or DELETE that returns nothing by itself.
        sources: What is hashed of each row, as RETURNING reads it.
        values: The statement's parameters.
    """
    statement = _SQL["digested"].format(change=change, hash=row_hash(sources))
    row = connection.execute(statement, values).fetchone()
    assert row is not None
    rows, total = row
    return RowDigest(rows, int(total))
