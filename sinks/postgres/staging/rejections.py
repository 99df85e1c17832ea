"""Finds the rows that a result table refuses, by savepoints and bisection.

Postgres names the constraint that failed but not the row. So the voted rows are
numbered, and ranges of them are inserted under savepoints: a range that goes in
stays in, one that fails is halved, down to single rows. A row that conflicts with
an earlier row of the same batch is therefore found as well. With k refused rows out
of n this takes about 2 k log2 n statements. Everything is rolled back at the end.

Rows with a value that does not fit the type of its column are found before that, by
one statement, which also tells the column.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.table_trouble import (
    check_unchanged,
    explain_failure,
)
from tallyweir.sinks.postgres.server.columns import names, table_identifier
from tallyweir.sinks.postgres.server.connection import abandon
from tallyweir.sinks.postgres.server.naming import TableNames, staged_for
from tallyweir.sinks.postgres.server.sqlstate import (
    is_row_rejection,
    translate,
    translated,
)
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.postgres.staging.attempt_register import transactions_of
from tallyweir.sinks.postgres.staging.corrections import Corrections
from tallyweir.sinks.postgres.tables.table_checks import (
    RowSkippedError,
    exact_sources,
    guarded,
    skips_rows,
)
from tallyweir.sinks.protocol.errors import ConfigurationError, TallyweirError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import RejectedRow, RowsRejectedError
from tallyweir.sinks.protocol.votes import BatchTally

_SQL = load_statements("tallyweir.sinks.postgres.staging", "rejections.sql")

#: A table that refuses more rows of one batch than this is wrong; its rows are not.
REJECTED_ROWS_MAX = 10_000
#: If a table silently skips a whole batch of at least this many rows, its trigger does
#: not judge rows but puts them elsewhere.
SKIPPED_BATCH_MIN = 100


def find_rejected(  # noqa: PLR0913 - all of a transaction
    connection: psycopg.Connection[TupleRow],
    outputs: Sequence[Output],
    tables: TableNames,
    tally: BatchTally,
    *,
    branch: str,
    corrections: Corrections | None = None,
) -> list[RejectedRow]:
    """Find every row of a branch that an append output refuses; leaves nothing behind.

    The result is empty if no single row is to blame. The rows that ``corrections``
    delete are no reason to refuse one.

    Raises:
        ConfigurationError: ``TABLE_REFUSES_ROWS``.
        RetryableError: The server or the connection failed.
    """
    rejected: list[RejectedRow] = []
    for output in outputs:
        staged = staged_for(output.staging_table, branch)
        if output.kind.has_event_rows and tally.staged.get(staged):
            with translated("looking for rejected rows"):
                rejected += _RejectionSearch(
                    connection,
                    output,
                    tables,
                    staging=tables.staging(staged),
                    # Branches of one server may search at the same time.
                    numbered=tables.staging(f"bisection@{branch}"),
                    attempts=tally.attempts,
                    corrections=corrections,
                ).run()
    return rejected


def explain_refusal(  # noqa: PLR0913 - all of a transaction
    connection: psycopg.Connection[TupleRow],
    outputs: Sequence[Output],
    tables: TableNames,
    tally: BatchTally,
    *,
    refusal: psycopg.Error,
    branch: str,
    doing: str,
    corrections: Corrections | None = None,
) -> RowsRejectedError | TallyweirError:
    """Say why a result table refused a row of a branch; leaves nothing behind.

    Returns:
        The rows that are to blame; or, if no single row is, the translated error.

    Raises:
        ConfigurationError: ``TABLE_CHANGED``, ``TABLE_REFUSES_ROWS`` or
            ``TABLE_SKIPS_ROWS``.
        RetryableError: The server or the connection failed.
    """
    abandon(connection)
    try:
        check_unchanged(connection, outputs)
    except psycopg.Error as error:
        return explain_failure(connection, outputs, error, doing=doing)
    rejected = find_rejected(
        connection, outputs, tables, tally, branch=branch, corrections=corrections
    )
    # Where no single row is to blame, staging again would not help.
    return RowsRejectedError(rejected) if rejected else translate(refusal, doing=doing)


class _RejectionSearch:
    """Searches one append output of one batch for the rows that its table refuses."""

    def __init__(  # noqa: PLR0913 - all of a transaction
        self,
        connection: psycopg.Connection[TupleRow],
        output: Output,
        tables: TableNames,
        *,
        staging: sql.Identifier,
        numbered: sql.Identifier,
        attempts: tuple[Attempt, ...],
        corrections: Corrections | None,
    ) -> None:
        self._connection = connection
        self._output = output
        self._columns = output.tables[output.table]
        self._tables = tables
        self._attempts = attempts
        self._staging = staging
        self._numbered = numbered
        self._corrections = corrections

    def run(self) -> list[RejectedRow]:
        """Return the refused rows; leaves nothing behind.

        Raises:
            ConfigurationError: ``TABLE_REFUSES_ROWS`` when there are so many that
                the table must be the cause; ``TABLE_SKIPS_ROWS`` when it takes no row.
            psycopg.Error: The server or the connection failed.
        """
        try:
            self._connection.execute(_SQL["bisection_settings"])
            self._connection.execute(_SQL["check_constraints_at_once"])
            self._sources = exact_sources(
                self._connection, self._output.table, self._columns
            )
            if self._corrections is not None:
                self._corrections.delete(self._output.table)
            numbered = self._connection.execute(
                _SQL["number_rows"].format(
                    numbered=self._numbered, staging=self._staging
                ),
                {
                    "transactions": transactions_of(
                        self._connection, self._tables, self._attempts
                    )
                },
            )
            self._connection.execute(
                _SQL["index_numbers"].format(numbered=self._numbered)
            )
            rows = numbered.rowcount
            unfit = self._take_out_unfit()
            refusal = self._try_range(1, rows)
            if refusal is None:
                return unfit
            check_takes_any(self._output, rows, refusal)
            middle = (1 + rows) // 2
            refused = self._refused_among([(1, middle), (middle + 1, rows)])
            while True:
                again = self._refused_among([(number, number) for number in refused])
                if len(again) == len(refused):
                    return unfit + [self._describe(*item) for item in again.items()]
                refused = again
        finally:
            abandon(self._connection)

    def _take_out_unfit(self) -> list[RejectedRow]:
        """Take rows with values that do not fit their columns out of the search."""
        sources = [column.from_staging for column in self._columns]
        tries = [
            _SQL["try_column"].format(
                shown=sql.Literal(f"{column.name}, which is {kind.declared}"),
                name=sql.Identifier(column.name),
                source=source,
            )
            for column, (source, kind) in zip(
                self._columns,
                guarded(self._connection, self._output.table, self._columns, sources),
                strict=True,
            )
            if kind is not None
        ]
        if not tries:
            return []
        body = _SQL["refusal_body"].format(tries=sql.SQL("\n").join(tries))
        # In the schema of the staging tables, where this role may create things.
        self._connection.execute(
            _SQL["create_refusal"].format(
                refusal=self._numbered,
                numbered=self._numbered,
                body=sql.Literal(body.as_string(self._connection)),
            )
        )
        refused = self._connection.execute(
            _SQL["take_out_refused"].format(
                refusal=self._numbered, numbered=self._numbered
            ),
            {"most": REJECTED_ROWS_MAX + 1},
        ).fetchall()
        unfit = [
            rejected_row(self._output, (topic, partition, offset), reason)
            for topic, partition, offset, reason in refused
        ]
        if unfit:
            check_number(self._output, len(unfit), refused[-1][-1])
        return unfit

    def _refused_among(self, ranges: list[tuple[int, int]]) -> dict[int, psycopg.Error]:
        """Insert the rows of some ranges; return the refused ones with the reason."""
        refused: dict[int, psycopg.Error] = {}
        # An explicit stack instead of recursion; the lower half comes first, so that
        # of two rows in conflict the later one is refused.
        ranges.reverse()
        while ranges:
            first, last = ranges.pop()
            if first > last:
                continue
            refusal = self._try_range(first, last)
            if refusal is None:
                continue
            if first == last:
                refused[first] = refusal
                check_number(self._output, len(refused), told(refusal))
                continue
            middle = (first + last) // 2
            ranges.append((middle + 1, last))
            ranges.append((first, middle))
        return refused

    def _try_range(self, first: int, last: int) -> psycopg.Error | None:
        """Insert a range; return why the table refuses it, or None if it does not."""
        statement = _SQL["insert_range"].format(
            target=table_identifier(self._output.table),
            numbered=self._numbered,
            columns=names(self._columns),
            sources=self._sources,
        )
        try:
            with self._connection.transaction():
                values = {"first": first, "last": last}
                taken, given = fetch_row(self._connection, statement, values)
                if taken != given:
                    raise RowSkippedError(taken)
        except psycopg.Error as error:
            if not is_row_rejection(error):
                raise
            return error
        return None

    def _describe(self, number: int, refusal: psycopg.Error) -> RejectedRow:
        topic, partition, offset = fetch_row(
            self._connection,
            _SQL["read_position"].format(numbered=self._numbered),
            {"number": number},
        )
        return rejected_row(self._output, (topic, partition, offset), told(refusal))


def check_takes_any(output: Output, rows: int, refusal: psycopg.Error) -> None:
    """Give up on a table that takes no row and raises no error.

    Raises:
        ConfigurationError: ``TABLE_SKIPS_ROWS``.
    """
    if rows < SKIPPED_BATCH_MIN or not isinstance(refusal, RowSkippedError):
        return
    if not refusal.taken:
        raise skips_rows(output.table, rows)


def check_number(output: Output, refused: int, reason: str) -> None:
    """Give up on a table that refuses too many rows.

    Args:
        output: The output of the table.
        refused: How many rows it has refused.
        reason: Why it has refused the last one.

    Raises:
        ConfigurationError: ``TABLE_REFUSES_ROWS``.
    """
    if refused <= REJECTED_ROWS_MAX:
        return
    raise ConfigurationError(
        "TABLE_REFUSES_ROWS",
        saw=f"Table {output.table} refused more than {REJECTED_ROWS_MAX} rows of one "
        f"batch, the last one with: {reason}.",
        why="So many refusals point to the table, not to its rows, and would turn "
        "the whole topic into dead letters.",
        fix="Correct the table's constraints or the pipeline.",
    )


def rejected_row(
    output: Output, position: tuple[str, int, int], reason: str
) -> RejectedRow:
    """Describe one row that the output's table refuses, for its dead letter."""
    topic, partition, offset = position
    return RejectedRow(
        topic_partition=TopicPartition(topic, partition),
        offset=offset,
        detail=f"Table {output.table} refused the row: {reason}.",
    )


def told(refusal: psycopg.Error) -> str:
    """Return what is told of a refusal: its state, and Postgres' message."""
    if isinstance(refusal, RowSkippedError):
        return f"ROW_SKIPPED {refusal}"
    return f"{refusal.sqlstate} {refusal.diag.message_primary}"
