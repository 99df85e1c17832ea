"""Loads SQL statements, which live in .sql files as named blocks.

A block begins with ``-- name: what_it_does`` and runs to the next one. Identifiers that
vary are written ``{like_this}`` and filled with ``psycopg.sql`` objects; values are
parameters. Nothing else is ever put into a statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, LiteralString, cast

from psycopg import Connection, sql
from psycopg.rows import TupleRow

_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_statements(package: str, file_name: str) -> dict[str, sql.SQL]:
    """Read the named blocks of one file.

    Args:
        package: The package whose ``sql`` folder holds the file.
        file_name: Name of the file, such as ``publish.sql``.
    """
    text = resources.files(package).joinpath("sql", file_name).read_text("utf-8")
    parts = _BLOCK.split(text)
    # The file is part of the installed package, so its text is as trusted as code. The
    # cast tells psycopg so.
    return {
        name: sql.SQL(cast(LiteralString, body.strip()))
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def fetch_row(
    connection: Connection[TupleRow],
    statement: sql.SQL | sql.Composed,
    values: Mapping[str, Any] | None = None,
) -> TupleRow:
    """Return the first row of a statement that always returns one."""
    row = connection.execute(statement, values).fetchone()
    assert row is not None
    return row
