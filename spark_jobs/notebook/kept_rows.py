"""Keeps the rows that a task would stage, for a notebook to show."""

from __future__ import annotations

import pyarrow as pa

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.server.columns import Column


class KeptRows:
    """Collects the rows of one task by staging table."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}

    def copy(
        self,
        branch: str,  # noqa: ARG002 - a notebook shows all branches
        table: str,
        columns: tuple[Column, ...],  # noqa: ARG002 - the rows have their names
        rows: pa.Table,
    ) -> None:
        """Keep rows of a staging table."""
        former = self.tables.get(table)
        parts = [rows] if former is None else [former, rows]
        self.tables[table] = pa.concat_tables(parts)

    def copy_results(self, output: AppendTable, rows: pa.Table) -> None:
        """Keep rows of a table that tasks copy into directly."""
        self.copy("", output.staging_table, output.columns, rows)
