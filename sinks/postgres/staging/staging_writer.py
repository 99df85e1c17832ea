"""Copies one task attempt's rows to a database's staging tables, in one transaction."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import psycopg
import pyarrow as pa
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.append_table import COPIED_ROWS, AppendTable
from tallyweir.sinks.postgres.server.binary_copy import copy_staged
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.connection import abandon
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.attempt_register import register_attempt
from tallyweir.sinks.postgres.staging.result_copy import ResultCopy
from tallyweir.sinks.protocol.identity import Attempt

_SQL = load_statements("tallyweir.sinks.postgres.staging", "staging.sql")


class StagingWriter:
    """Copies one task attempt's rows to one database, all in one transaction.

    Use it as a context manager, with no savepoint around the copies. Leaving it
    normally commits; the task may vote only after that.

    Args:
        connection: A connection to that database.
        names: Names of the batch's tables there.
        attempt: The attempt that the rows belong to.

    Crash:
        Before the commit nothing is staged. After it the rows are staged but not
        voted for, so no publish transaction will ever move them.
    """

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        names: TableNames,
        *,
        attempt: Attempt,
    ) -> None:
        self._connection = connection
        self._names = names
        self._attempt = attempt
        #: Rows copied so far, by staging table: what the vote will state.
        self.rows: dict[str, int] = {}

    def __enter__(self) -> Self:
        with translated("starting to stage"):
            self._connection.execute(_SQL["begin_staging"])
            register_attempt(self._connection, self._names, self._attempt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            with translated("committing staged rows"):
                self._connection.commit()
        else:
            abandon(self._connection)

    def copy(self, table: str, columns: tuple[Column, ...], rows: pa.Table) -> None:
        """Copy an Arrow table, whose columns are in the order of ``columns``.

        Raises:
            RetryableError: The server or the connection failed.
            FatalError: The data does not fit the staging table, or a newer driver
                has dropped it.
        """
        if rows.num_rows == 0:
            return
        named = rows.rename_columns([column.name for column in columns])
        target = self._names.staging(table)
        with translated(f"staging rows for {table}"):
            copy_staged(self._connection, target, columns, named)
        self.rows[table] = self.rows.get(table, 0) + rows.num_rows

    def copy_results(self, output: AppendTable, rows: pa.Table) -> None:
        """Copy rows straight into an output's table, with a receipt in staging.

        The receipt comes first: a task whose epoch's staging is gone writes nothing.

        Raises:
            RowsRejectedError: The table refuses these rows; leave with the error, and
                copy again without them.
            RetryableError, ConfigurationError, FatalError: As ``copy`` and
                ``ResultCopy.run`` do.

        Crash:
            Before the commit nothing is in the table. After it the rows are there,
            whether or not their batch is ever published: at least once. A crash of the
            server may undo a commit that did not wait for the disk, but it also
            empties staging, so publishing misses the receipt.
        """
        receipt = pa.table({COPIED_ROWS.name: pa.array([rows.num_rows], pa.int64())})
        self.copy(output.staging_table, output.staging_columns, receipt)
        ResultCopy(self._connection, output).run(rows)
