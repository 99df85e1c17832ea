"""What the fakes of all databases share: how a server fails, and its staging tables."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum

from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.protocol.identity import Attempt, Epoch
from tallyweir.sinks.protocol.ports import RejectedRow, RowsRejectedError
from tallyweir.sinks.protocol.votes import BatchTally
from tallyweir.sinks.testing.planned_batches import Position


class LostAnswer(Enum):
    """What happens to a statement whose answer never reaches its client."""

    #: The server acts on it.
    ACTED = "acted"
    #: It never arrives: the server rolls the transaction back.
    DROPPED = "dropped"
    #: The server acts on it later, when its client has given up or is dead.
    LATE = "late"


def _nothing(call: str) -> None:
    del call


class MemoryServer:
    """A server that fails when a test tells it to.

    Attributes:
        interlude: Called at the beginning of each call, with a description of the call.
            In it, tests let other actors work, or fail.
        calls_to_fail: The number of next calls that find the server unreachable.
        happened: Counts the faults that took effect, by name.
    """

    def __init__(self) -> None:
        self.interlude: Callable[[str], None] = _nothing
        self.calls_to_fail = 0
        self.happened: Counter[str] = Counter()

    def arrive(self, call: str) -> None:
        """Begin a call.

        Raises:
            RetryableError: ``POSTGRES_UNREACHABLE``, if the call is to fail.
        """
        self.interlude(call)
        if self.calls_to_fail:
            self.calls_to_fail -= 1
            self.happened["server unreachable"] += 1
            raise RetryableError(
                "POSTGRES_UNREACHABLE",
                saw=f"The server did not answer to {call}.",
                why="Nothing can be done without it.",
                fix="Check that the server runs.",
            )

    def take_loss(self, losses: deque[LostAnswer], statement: str) -> LostAnswer | None:
        """Return how the statement that arrives now loses its answer; usually None."""
        if not losses:
            return None
        lost = losses.popleft()
        self.happened[f"{statement}: answer lost, {lost.value}"] += 1
        return lost


def lock_not_available(saw: str) -> RetryableError:
    """Return the error for a transaction that waited for a lock in vain."""
    return RetryableError(
        "POSTGRES_UNAVAILABLE",
        saw=saw,
        why="Two may not change the same row at a time.",
        fix="Nothing to do: it is tried again.",
    )


def no_answer(statement: str) -> RetryableError:
    """Return the error for a connection that broke during a statement."""
    return RetryableError(
        "POSTGRES_UNREACHABLE",
        saw=f"The connection was lost during {statement}.",
        why="The server may have acted on it or not.",
        fix="Nothing to do: it is looked at again.",
    )


def staging_gone(epoch: int) -> FatalError:
    """Return the error for a task whose staging tables are gone."""
    return FatalError(
        "STAGING_GONE",
        saw=f"Epoch {epoch} has no staging tables.",
        why="A newer driver has dropped them.",
        fix="Nothing to do: the newer driver works.",
    )


def staged_rows_missing(table: str, *, voted: int, found: int) -> RetryableError:
    """Return the error for staging that lacks rows the tasks voted for."""
    return RetryableError(
        "STAGED_ROWS_MISSING",
        saw=f"The tasks voted for {voted} rows of {table}; staging holds {found}.",
        why="A crash of the server empties staging tables.",
        fix="Nothing to do: the batch is staged again.",
    )


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
