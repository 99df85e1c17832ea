"""Moves a batch's voted rows from staging to the result tables of one transaction.

The home's publish transaction and every branch do the same: append what was staged
for them, merge their windows, and count that what moved is what was voted for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.outputs.append_table import AppendTable
from sinks.postgres.outputs.home_layout import Output
from sinks.postgres.outputs.keyed_table import KeyedTable
from sinks.postgres.outputs.outbox_table import (
    MESSAGE_COLUMNS,
    OUTBOX_EVENT_ID,
    OutboxTable,
)
from sinks.postgres.outputs.window_merge import WindowMerge
from sinks.postgres.outputs.window_table import WindowTable
from sinks.postgres.publish.keyed_moves import move_results
from sinks.postgres.publish.publish_clock import PublishClock
from sinks.postgres.server.branch_names import staged_for
from sinks.postgres.server.columns import names, table_identifier
from sinks.postgres.server.instants import to_datetime
from sinks.postgres.server.naming import TableNames, revisions_table
from sinks.postgres.server.sqlstate import is_row_rejection
from sinks.postgres.server.statements import load_statements
from sinks.postgres.tables.exact_values import (
    TypesChangedError,
    exact_sources,
    unfit_types,
)
from sinks.postgres.tables.insertable import RowSkippedError, skips_rows
from sinks.postgres.tables.row_digest import (
    RESULTS,
    REVISIONS,
    RowDigest,
    row_hash,
    stored,
)
from sinks.protocol.errors import RetryableError
from sinks.protocol.identity import Epoch
from sinks.protocol.ports import BatchTerms
from sinks.protocol.votes import BatchTally, OutputTally

_SQL = load_statements("sinks.postgres.publish", "publish.sql")
_KEYED = load_statements("sinks.postgres.publish", "keyed.sql")

_Connection = psycopg.Connection[TupleRow]


class RowRefusedError(Exception):
    """A result table refused a row; which one, bisection must find."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def kept_tables(output: Output, names: TableNames) -> Iterator[sql.Identifier]:
    """Yield the tables that keep what an output took of all batches so far.

    Messages of an outbox are the relay's, not the pipeline's any more.
    """
    if isinstance(output, AppendTable | WindowTable):
        yield table_identifier(output.table)
    if isinstance(output, WindowTable):
        yield names.state(output.table)
        if output.keeps_revisions:
            yield table_identifier(revisions_table(output.table))


class OutputMoves:
    """The result tables' share of one publish transaction.

    Args:
        connection: In that transaction; the caller ends it.
        tables: The names of staging and state there.
        tally: What was voted for.
        values: The transaction's parameters: sequence, the transactions that the
            voters have staged in, when the batch was planned, and the watermark
            before and after it.
        clock: Of the transaction, where somebody measures it.

    Attributes:
        digests: What the rows are that have been put into tables for good: by output,
            of its table and of the one of its revisions, as the ledger keeps them.
    """

    def __init__(
        self,
        connection: _Connection,
        tables: TableNames,
        tally: BatchTally,
        values: Mapping[str, object],
        clock: PublishClock | None = None,
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._tally = tally
        self._values = values
        self._clock = clock or PublishClock()
        self.digests: dict[str, dict[str, dict[str, int]]] = {}

    def run(self, outputs: Sequence[Output], branch: str) -> int:
        """Move what was staged for a branch; return the number of staged rows moved.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``, after a crash of the server.
            RowRefusedError: A result table refused a row.
            psycopg.Error: Anything that the server or the connection raised.
        """
        moved = 0
        for output in outputs:
            staged = staged_for(output.staging_table, branch)
            part = "windows" if isinstance(output, WindowTable) else "rows"
            with self._clock.spent_on(part):
                moved += self._move(output, staged)
        # A user's deferred constraint must fail here, where the row can be found,
        # and not inside COMMIT or PREPARE TRANSACTION.
        with _row_refusals(), self._clock.spent_on("rows"):
            self._connection.execute(_SQL["check_deferred_constraints"])
        return moved

    def _move(self, output: Output, staged: str) -> int:
        if isinstance(output, AppendTable):
            return self._append(output, staged)
        if isinstance(output, OutboxTable):
            return self._fill_outbox(output, staged)
        if isinstance(output, KeyedTable):
            return self._insert_results(output)
        return self._merge_windows(output, staged)

    def check_moved(self, staged: str, rows: int) -> None:
        """Hold the rows that moved against those that were voted for.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``.
        """
        voted = self._tally.staged.get(staged, 0)
        if rows != voted:
            raise RetryableError(
                "STAGED_ROWS_MISSING",
                saw=f"The tasks voted for {voted} rows of {staged}; staging holds "
                f"{rows}.",
                why="A crash of the server empties staging tables.",
                fix="Nothing to do: the batch is staged again.",
            )

    def _append(self, output: AppendTable, staged: str) -> int:
        if not self._tally.staged.get(staged):
            return 0
        if output.copied_by_tasks:
            return self._check_receipts(output, staged)
        sources = exact_sources(self._connection, output.table, output.columns)
        statement = _SQL["move_append"].format(
            target=table_identifier(output.table),
            staging=self._tables.staging(staged),
            columns=names(output.columns),
            sources=sources,
        )
        with _row_refusals():
            moved = self._connection.execute(statement, self._values)
        # Now that the statement holds its lock, nobody can change them any more.
        if sources != exact_sources(self._connection, output.table, output.columns):
            raise TypesChangedError(output.table, "40001")
        if moved.rowcount < self._count_staged(staged, moved.rowcount):
            raise RowRefusedError(RowSkippedError(moved.rowcount))
        self.check_moved(staged, moved.rowcount)
        return moved.rowcount

    def _count_staged(self, staged: str, moved: int) -> int:
        """Count the voters' rows, unless all that were voted for have moved."""
        if moved == self._tally.staged.get(staged, 0):
            return moved
        statement = _KEYED["count_staged"].format(staging=self._tables.staging(staged))
        row = self._connection.execute(statement, self._values).fetchone()
        assert row is not None
        return int(row[0])

    def _check_types(self, output: AppendTable | WindowTable | KeyedTable) -> None:
        """Look at types that a start has checked, under the locks of what is written.

        Raises:
            TypesChangedError: A column may have changed what was put into it.
        """
        for table, columns in output.tables.items():
            if unfit_types(self._connection, table, columns, per_value=False):
                raise TypesChangedError(table, "42804")

    def _check_receipts(self, output: AppendTable, staged: str) -> int:
        """Make sure that the rows which tasks copied are still in this very server.

        Receipts are unlogged, so a crash of the server or a failover, either of which
        may have taken rows back, has taken the receipts too.
        """
        statement = _SQL["count_copied"].format(staging=self._tables.staging(staged))
        row = self._connection.execute(statement, self._values).fetchone()
        assert row is not None
        receipts, copied = row
        self.check_moved(staged, receipts)
        voted = self._tally.outputs[output.table].rows
        assert copied == voted, f"{copied} rows have receipts, {voted} were voted for"
        self._check_types(output)
        return int(receipts)

    def _fill_outbox(self, output: OutboxTable, staged: str) -> int:
        if not self._tally.staged.get(staged):
            return 0
        statement = _SQL["move_outbox"].format(
            topic=sql.Literal(output.topic),
            event_id=sql.Identifier(OUTBOX_EVENT_ID.name),
            key=output.key_as_bytes,
            fields=sql.SQL(", ").join(field.as_json for field in output.fields),
            staging=self._tables.staging(staged),
            hash=row_hash(stored(MESSAGE_COLUMNS)),
        )
        row = self._connection.execute(statement, self._values).fetchone()
        assert row is not None
        moved = RowDigest(row[0], int(row[1]))
        self.check_moved(staged, moved.rows)
        self.digests[output.table] = {RESULTS: moved.as_json()}
        return moved.rows

    def _insert_results(self, output: KeyedTable) -> int:
        staged = output.rows_staging_table
        if not self._tally.staged.get(staged):
            return 0
        with _row_refusals():
            moved = move_results(
                self._connection, output, self._tables.staging(staged), self._values
            )
        self._check_types(output)
        skipped = self._count_staged(staged, moved.rows) - moved.rows
        if skipped > 0:
            raise skips_rows(output.table, skipped)
        self.check_moved(staged, moved.rows)
        self.digests[output.table] = {RESULTS: moved.as_json()}
        return moved.rows

    def _merge_windows(self, output: WindowTable, staged: str) -> int:
        merge = WindowMerge(
            self._connection,
            output,
            self._values,
            staging=self._tables.staging(staged),
            state=self._tables.state(output.table),
        )
        moved = 0
        if self._tally.staged.get(staged):
            # The merge groups rows, so its row count says nothing about staged ones.
            moved = merge.count_staged()
            self.check_moved(staged, moved)
            tally = self._tally.outputs.get(output.table, OutputTally())
            merge.run(is_revised=tally.revised > 0)
        if output.waits:
            merge.show_waiting()
        if self._values["watermark_after"] != self._values["watermark_before"]:
            merge.settle()
        self._check_types(output)
        digests = {RESULTS: merge.settled, REVISIONS: merge.revisions}
        self.digests[output.table] = {
            kind: digest.as_json() for kind, digest in digests.items() if digest.rows
        }
        return moved


@contextmanager
def _row_refusals() -> Iterator[None]:
    """Tell a row that the user's table refuses from every other error."""
    try:
        yield
    except psycopg.Error as error:
        if is_row_rejection(error):
            raise RowRefusedError(error) from error
        raise


def publish_values(epoch: Epoch, terms: BatchTerms) -> dict[str, object]:
    """Collect the parameters that the statements of home and branches share."""
    return {
        "sequence": terms.sequence,
        "epoch": epoch,
        "watermark_before": to_datetime(terms.watermark_before_us),
        "watermark_after": to_datetime(terms.watermark_after_us),
        "planned_at": to_datetime(terms.planned_at_us),
    }
