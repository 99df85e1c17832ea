"""Rows as pages of the documentation show them."""

from __future__ import annotations

import csv
import io
from typing import Any

import psycopg


def show_rows(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> str:
    """Return rows as ``psql --csv`` shows them, in order."""
    found = connection.execute(query.encode())
    assert found.description is not None
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(column.name for column in found.description)
    rows.writerows(sorted(found.fetchall()))
    return text.getvalue()
