"""Reads a lookup table whole, for enrichment."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from sinks.postgres.columns import table_identifier
from sinks.postgres.connection import connect
from sinks.postgres.sqlstate import translate
from sinks.protocol.errors import ConfigurationError

#: A lookup table travels to every executor with each batch, so it must be small.
LOOKUP_ROWS_MAX = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupTable:
    """A copy of a lookup table.

    Attributes:
        rows: Key columns first, then the selected ones.
        version: Changes when the rows change; the ledger keeps it.
    """

    rows: Sequence[tuple[Any, ...]]
    version: str


def read_lookup_table(
    dsn: str, table: str, *, keys: Sequence[str], select: Sequence[str]
) -> LookupTable:
    """Read a lookup table in one snapshot.

    Raises:
        ConfigurationError: ``LOOKUP_MISSING`` (no such table or column),
            ``LOOKUP_AMBIGUOUS`` (a key twice, which would double events) or
            ``LOOKUP_TOO_LARGE``.
        RetryableError: The server is unreachable.
    """
    columns = [*keys, *select]
    statement = sql.SQL("SELECT {} FROM {} ORDER BY {} LIMIT {}").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        table_identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.Literal(LOOKUP_ROWS_MAX + 1),
    )
    with connect(dsn, application_name="tallyweir lookup") as connection:
        try:
            rows = connection.execute(statement).fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise ConfigurationError(
                "LOOKUP_MISSING",
                saw=f"Reading {', '.join(columns)} of lookup table {table} failed: "
                f"{error.diag.message_primary}.",
                why="Events cannot be enriched without it.",
                fix="Create the table, or correct enrich in the pipeline file.",
            ) from error
        except psycopg.Error as error:
            raise translate(error, doing=f"reading lookup table {table}") from error
    _check(table, rows, keys)
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    return LookupTable(rows=rows, version=f"{len(rows)} rows, {digest}")


def _check(table: str, rows: Sequence[tuple[Any, ...]], keys: Sequence[str]) -> None:
    if len(rows) > LOOKUP_ROWS_MAX:
        raise ConfigurationError(
            "LOOKUP_TOO_LARGE",
            saw=f"Lookup table {table} has more than {LOOKUP_ROWS_MAX} rows.",
            why="It is held in memory by every task.",
            fix="Look up a smaller table or view.",
        )
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        key = row[: len(keys)]
        if key in seen and None not in key:
            raise ConfigurationError(
                "LOOKUP_AMBIGUOUS",
                saw=f"Lookup table {table} has more than one row with "
                f"{dict(zip(keys, key, strict=True))}.",
                why="Each of their events would count more than once.",
                fix=f"Make ({', '.join(keys)}) unique in {table}.",
            )
        seen.add(key)
