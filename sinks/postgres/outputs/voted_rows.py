"""The staged rows of one transaction that were voted for, as an output moves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.server.sqlstate import is_row_rejection
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.exact_values import TypesChangedError, unfit_types
from tallyweir.sinks.postgres.tables.row_digest import RowDigest
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.votes import BatchTally

_SQL = load_statements("tallyweir.sinks.postgres.outputs", "voted_rows.sql")


class RowRefusedError(Exception):
    """A result table refused a row; bisection must find which one."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """What one output has moved.

    Attributes:
        staged: The number of staged rows.
        digests: Digests of the rows that have been put for good into its table and into
            its revisions table, as the ledger keeps them.
    """

    staged: int = 0
    digests: Mapping[str, RowDigest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VotedRows:
    """The rows that a batch's voters have staged for one transaction.

    Attributes:
        connection: In that transaction; the caller ends it.
        tables: The names of the staging and state tables there.
        tally: The tally of the votes.
        values: The transaction's parameters: sequence, the transactions that the
            voters have staged in, when the batch was planned, and the watermark
            before and after it.
    """

    connection: psycopg.Connection[TupleRow]
    tables: TableNames
    tally: BatchTally
    values: Mapping[str, object]

    def voted(self, staged: str) -> int:
        """Return how many rows of a staging table were voted for."""
        return self.tally.staged.get(staged, 0)

    def count(self, staged: str) -> int:
        """Count the voters' rows in a staging table."""
        statement = _SQL["count_staged"].format(staging=self.tables.staging(staged))
        row = self.connection.execute(statement, self.values).fetchone()
        assert row is not None
        return int(row[0])

    def count_skipped(self, staged: str, moved: int) -> int:
        """Return how many of the given rows a table left out."""
        # If all rows that were voted for have moved, there is nothing to count.
        return 0 if moved == self.voted(staged) else self.count(staged) - moved

    def check_moved(self, staged: str, rows: int) -> None:
        """Compare the rows that moved with those that were voted for.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``.
        """
        voted = self.voted(staged)
        if rows != voted:
            raise RetryableError(
                "STAGED_ROWS_MISSING",
                saw=f"The tasks voted for {voted} rows of {staged}; staging holds "
                f"{rows}.",
                why="A crash of the server empties the staging tables.",
                fix="Nothing to do: the batch is staged again.",
            )

    def check_types(self, tables: Mapping[str, Sequence[Column]]) -> None:
        """Repeat a start's check of column types, under the locks of the writes.

        Raises:
            TypesChangedError: A column may have changed what was put into it.
        """
        for table, columns in tables.items():
            if unfit_types(self.connection, table, columns, per_value=False):
                raise TypesChangedError(table, "42804")


@contextmanager
def row_refusals() -> Iterator[None]:
    """Tell a row that the user's table refuses from every other error.

    Raises:
        RowRefusedError: The table refused a row in the block.
    """
    try:
        yield
    except psycopg.Error as error:
        if is_row_rejection(error):
            raise RowRefusedError(error) from error
        raise
