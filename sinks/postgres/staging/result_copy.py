"""Copies rows straight into a result table, as tasks do at least once.

A table may refuse some of the rows. COPY then takes no row and names only the first
refused one, so bisection finds the others: a part that goes in stays in, and one that
does not is halved, down to single rows. Everything is rolled back at the end. The task,
which still has all rows, then writes again without the refused ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pyarrow as pa
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.table_trouble import (
    check_unchanged,
    explain_failure,
)
from tallyweir.sinks.postgres.server.binary_copy import copy_results
from tallyweir.sinks.postgres.server.columns import POSITION_COLUMNS, table_identifier
from tallyweir.sinks.postgres.server.sqlstate import is_row_rejection, translate
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.rejections import (
    check_number,
    check_takes_any,
    rejected_row,
)
from tallyweir.sinks.postgres.tables.insertable import RowSkippedError
from tallyweir.sinks.protocol.ports import RejectedRow, RowsRejectedError

_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_POSITION = [column.name for column in POSITION_COLUMNS]


class ResultCopy:
    """Copies one task's rows of one output, inside of the task's transaction.

    Args:
        connection: A connection in that transaction; the caller ends it.
        output: An output whose table has columns of exactly the output's types.
    """

    def __init__(
        self, connection: psycopg.Connection[TupleRow], output: AppendTable
    ) -> None:
        self._connection = connection
        self._output = output

    def run(self, rows: pa.Table) -> None:
        """Copy all rows, whose columns are in the order of the output's.

        Raises:
            RowsRejectedError: The table refuses these rows; roll back, and copy the
                others.
            ConfigurationError: ``TABLE_REFUSES_ROWS`` or ``TABLE_SKIPS_ROWS``: too
                many to be the rows' fault; ``TABLE_CHANGED``.
            RetryableError: The server or the connection failed.
            FatalError: The table refused rows for another reason.

        Crash:
            Nothing is in the table before the caller commits.
        """
        doing = f"copying rows into {self._output.table}"
        try:
            # A deferred constraint must fail where the row can still be found.
            self._connection.execute(_PUBLISH["check_deferred_constraints"])
            refusal = self._refusal_of(rows)
            if refusal is None:
                return
            check_takes_any(self._output, rows.num_rows, refusal)
            # This check rolls back; the rows that were copied are copied again below.
            check_unchanged(self._connection, [self._output])
            self._connection.execute(_PUBLISH["check_deferred_constraints"])
            refused = list(self._find_refused(rows))
        except psycopg.Error as error:
            raise explain_failure(
                self._connection, [self._output], error, doing=doing
            ) from error
        if not refused:
            # No single row is to blame, so copying the others would not help.
            raise translate(refusal, doing=doing) from refusal
        raise RowsRejectedError(refused) from refusal

    def _find_refused(self, rows: pa.Table) -> Iterator[RejectedRow]:
        # An explicit stack instead of recursion; the lower half comes first, so that
        # of two rows in conflict the later one is refused.
        parts = [rows]
        found = 0
        while parts:
            part = parts.pop()
            refusal = self._refusal_of(part)
            if refusal is None:
                continue
            if part.num_rows > 1:
                middle = part.num_rows // 2
                parts += [part.slice(middle), part.slice(0, middle)]
                continue
            found += 1
            check_number(self._output, found, refusal)
            (row,) = part.select(_POSITION).to_pylist()
            topic, partition, offset = row.values()
            yield rejected_row(self._output, (topic, partition, offset), refusal)

    def _refusal_of(self, rows: pa.Table) -> psycopg.Error | None:
        """Copy rows; return why the table refuses one, or None if they went in."""
        output = self._output
        try:
            with self._connection.transaction():
                target = table_identifier(output.table)
                taken = copy_results(self._connection, target, output.columns, rows)
                if taken != rows.num_rows:
                    raise RowSkippedError(taken)
        except psycopg.Error as error:
            if not is_row_rejection(error):
                raise
            return error
        return None
