"""Sends one task attempt's rows to the home, or to the databases they belong to.

A ``StagingWriter`` copies them to each.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.server.branch_names import HOME, database_of, staged_for
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter


class TakesRows(Protocol):
    """Takes the rows that a task makes of its events: staging, or a reader of them."""

    def copy(
        self, branch: str, table: str, columns: tuple[Column, ...], rows: pa.Table
    ) -> None:
        """Take rows that one branch would publish."""

    def copy_results(self, output: AppendTable, rows: pa.Table) -> None:
        """Take rows that a task would copy straight into a table."""


class TaskStaging:
    """Copies one task attempt's rows to the databases of the branches they belong to.

    Use it as a context manager. Leaving it normally commits in every database; the task
    may vote only after that.

    Args:
        open_writer: Opens the writer of a database; called for the home at once, and
            for any other database with the first rows for it.

    Crash:
        Between two commits some databases hold rows without a vote, which no publish
        transaction will ever move.
    """

    def __init__(self, open_writer: Callable[[str], StagingWriter]) -> None:
        self._open_writer = open_writer
        self._writers: dict[str, StagingWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._writer(HOME)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Commits one after the other; after one that fails, the others roll back.
        self._open.__exit__(kind, error, trace)

    @property
    def rows(self) -> dict[str, int]:
        """Rows copied so far, by the names that ``staged_for`` gives."""
        return {
            table: rows
            for writer in self._writers.values()
            for table, rows in writer.rows.items()
        }

    def copy(
        self, branch: str, table: str, columns: tuple[Column, ...], rows: pa.Table
    ) -> None:
        """Copy rows that one branch will publish, as ``StagingWriter.copy`` does.

        Raises:
            ConfigurationError: The login to the branch's database was refused.
            RetryableError: A server or connection failed.
            FatalError: As ``StagingWriter.copy`` does.
        """
        if rows.num_rows:
            writer = self._writer(database_of(branch))
            writer.copy(staged_for(table, branch), columns, rows)

    def copy_results(self, output: AppendTable, rows: pa.Table) -> None:
        """Copy rows straight into a table of the home, as the writer's method does.

        Raises:
            RowsRejectedError: The table refuses these rows; leave with the error, and
                copy again without them.
            TallyweirError: As ``StagingWriter.copy_results`` does.

        Crash:
            As ``StagingWriter.copy_results``.
        """
        if rows.num_rows:
            self._writer(HOME).copy_results(output, rows)

    def _writer(self, database: str) -> StagingWriter:
        if database not in self._writers:
            writer = self._open_writer(database)
            self._writers[database] = self._open.enter_context(writer)
        return self._writers[database]
