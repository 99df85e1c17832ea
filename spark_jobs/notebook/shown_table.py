"""Turns tables into frames for a notebook."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from tallyweir.sinks.postgres.audit.why.slice_results import TableRows


def as_frame(table: pa.Table) -> pd.DataFrame:
    """Return a frame of an Arrow table; nullable integers stay integers."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def rows_as_frame(rows: TableRows) -> pd.DataFrame:
    """Return a frame of Postgres rows, ordered by key, with unchanged values."""
    order = [rows.columns.index(name) for name in rows.key]
    given = sorted(rows.rows, key=lambda row: [_comparable(row[n]) for n in order])
    return pd.DataFrame(given, columns=list(rows.columns), dtype=object)


def _comparable(value: object) -> tuple[bool, object]:
    """Return a sort key that puts nulls last."""
    return value is None, 0 if value is None else value
