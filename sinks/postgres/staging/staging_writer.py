"""Copies one task attempt's rows to staging, in one transaction of each database.

A task that writes at least once copies rows straight into a result table instead. The
table may refuse some of them. COPY then takes no row and names only the first refused
one, so bisection finds the others: a part that goes in stays in, and one that does not
is halved, down to single rows. Everything is rolled back at the end. The task, which
still has all rows, then writes again without the refused ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

import psycopg
import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.append_table import COPIED_ROWS, AppendTable
from tallyweir.sinks.postgres.outputs.table_trouble import (
    check_unchanged,
    explain_failure,
)
from tallyweir.sinks.postgres.server.columns import (
    POSITION_COLUMNS,
    Column,
    names,
    table_identifier,
)
from tallyweir.sinks.postgres.server.connection import abandon
from tallyweir.sinks.postgres.server.naming import (
    HOME,
    TableNames,
    database_of,
    staged_for,
)
from tallyweir.sinks.postgres.server.sqlstate import (
    is_row_rejection,
    translate,
    translated,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.attempt_register import register_attempt
from tallyweir.sinks.postgres.staging.rejections import (
    check_number,
    check_takes_any,
    rejected_row,
    told,
)
from tallyweir.sinks.postgres.tables.table_checks import RowSkippedError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.ports import RejectedRow, RowsRejectedError

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
            _copy_into_staging(self._connection, target, columns, named)
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
            check_number(self._output, found, told(refusal))
            (row,) = part.select(_POSITION).to_pylist()
            topic, partition, offset = row.values()
            yield rejected_row(self._output, (topic, partition, offset), told(refusal))

    def _refusal_of(self, rows: pa.Table) -> psycopg.Error | None:
        """Copy rows; return why the table refuses one, or None if they went in."""
        output = self._output
        try:
            with self._connection.transaction():
                target = table_identifier(output.table)
                taken = _copy_into_results(
                    self._connection, target, output.columns, rows
                )
                if taken != rows.num_rows:
                    raise RowSkippedError(taken)
        except psycopg.Error as error:
            if not is_row_rejection(error):
                raise
            return error
        return None


def _copy_into_staging(
    connection: psycopg.Connection[TupleRow],
    target: sql.Identifier,
    columns: Sequence[Column],
    rows: pa.Table,
) -> None:
    """Copy rows into a staging table, where nested values are text.

    Raises:
        psycopg.Error: The data does not fit, or the server or connection failed.
    """
    _copy(connection, target, columns, rows, ArrowToPostgresBinaryEncoder(rows.schema))


def _copy_into_results(
    connection: psycopg.Connection[TupleRow],
    target: sql.Identifier,
    columns: Sequence[Column],
    rows: pa.Table,
) -> int:
    """Copy rows into a result table, whose columns have exactly the types given.

    Returns:
        Number of rows that the table has taken.

    Raises:
        psycopg.Error: The table refuses a row, or the server or connection failed.
    """
    encoders = {
        field.name: StringEncoderBuilder.new_with_output(field, Jsonb())
        if column.postgres_type == "jsonb"
        else ArrowToPostgresBinaryEncoder.infer_encoder(field)
        for column, field in zip(columns, rows.schema, strict=True)
    }
    encoder = ArrowToPostgresBinaryEncoder.new_with_encoders(rows.schema, encoders)
    return _copy(connection, target, columns, rows, encoder)


def _copy(
    connection: psycopg.Connection[TupleRow],
    target: sql.Identifier,
    columns: Sequence[Column],
    rows: pa.Table,
    encoder: ArrowToPostgresBinaryEncoder,
) -> int:
    statement = sql.SQL("COPY {} ({}) FROM STDIN WITH (FORMAT BINARY)").format(
        target, names(columns)
    )
    with connection.cursor() as cursor:
        with cursor.copy(statement) as copy:
            copy.write(encoder.write_header())
            for batch in rows.to_batches():
                copy.write(encoder.write_batch(batch))
            copy.write(encoder.finish())
        return cursor.rowcount
