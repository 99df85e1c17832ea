"""A fake of the staging tables in one database: one schema per epoch, UNLOGGED."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tallyweir.sinks.protocol.identity import Attempt, Epoch
from tallyweir.sinks.protocol.ports import RejectedRow, RowsRejectedError
from tallyweir.sinks.protocol.votes import BatchTally
from tallyweir.sinks.testing.memory_server import staged_rows_missing, staging_gone
from tallyweir.sinks.testing.planned_batches import Position


class MemoryStagingTables:
    """The rows that tasks have staged, by epoch and table."""

    def __init__(self) -> None:
        self._epochs: dict[Epoch, dict[str, list[tuple[Attempt, Position]]]] = {}

    def open(self, epoch: Epoch) -> None:
        """Make an epoch's empty staging, and drop that of every other epoch."""
        self._epochs = {epoch: {}}

    def stage(
        self, epoch: Epoch, attempt: Attempt, rows: Iterable[Position], table: str
    ) -> None:
        """Stage rows like a task of an epoch's driver.

        Raises:
            FatalError: A newer driver has dropped the epoch's staging.
        """
        if epoch not in self._epochs:
            raise staging_gone(epoch)
        staged = self._epochs[epoch].setdefault(table, [])
        staged.extend((attempt, position) for position in rows)

    def move(
        self, epoch: Epoch, tally: BatchTally, table: str, refused: Collection[Position]
    ) -> tuple[Position, ...]:
        """Return the rows that a batch moves out of one staging table.

        Raises:
            RetryableError: Rows that were voted for are missing.
            RowsRejectedError: The result table refuses some of them.
        """
        moved = tuple(self.voted(epoch, tally, table))
        voted = tally.staged.get(table, 0)
        if len(moved) != voted:
            raise staged_rows_missing(table, voted=voted, found=len(moved))
        rejected = [
            RejectedRow(
                topic_partition=topic_partition,
                offset=offset,
                detail=f"Table {table} refused the row.",
            )
            for topic_partition, offset in moved
            if (topic_partition, offset) in refused
        ]
        if rejected:
            raise RowsRejectedError(rejected)
        return moved

    def voted(self, epoch: Epoch, tally: BatchTally, table: str) -> list[Position]:
        """Return the rows of a table that a batch's attempts have voted for."""
        rows = self._epochs.get(epoch, {}).get(table, ())
        return [row for attempt, row in rows if attempt in tally.attempts]

    def lose_rows(self) -> None:
        """Empty all tables, like a crash of the server."""
        for tables in self._epochs.values():
            tables.clear()

    def drop(self) -> None:
        """Drop all staging, like a restore: no backup holds staging."""
        self._epochs = {}
