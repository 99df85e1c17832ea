"""Tells whether a version that is watched does worse than the one before it.

The same number of batches counts for both: the first of the new version, and the last
of the former one. Everything is read from the ledger, so a driver that starts over goes
on with the watch.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow, class_row

from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.versions", "health.sql")

#: The fewest records to judge a version by, unless all watched batches have fewer.
RECORDS_MIN = 100
#: By how much the share of dead letters may be greater than before.
DEAD_SHARE_MORE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHealth:
    """A version that is watched, and what has become of its batches.

    Attributes:
        version: The version's number.
        former: The number of the version before it.
        watched_batches: How many batches are watched.
        batches: How many of them are published.
        read: How many records these have read.
        dead: How many of the records are dead letters.
        former_read: How many records the same number of batches before had read.
        former_dead: How many of those records are dead letters.
    """

    version: int
    former: int
    watched_batches: int
    batches: int
    read: int
    dead: int
    former_read: int
    former_dead: int

    @property
    def is_over(self) -> bool:
        """Whether all watched batches are published."""
        return self.batches >= self.watched_batches

    def find_worse(self) -> str | None:
        """Say what is worse than before; None if nothing is, or it is too early."""
        if self.read < RECORDS_MIN and not self.is_over:
            return None
        if not self.read:
            return None
        former_share = self.former_dead / self.former_read if self.former_read else 0
        share = self.dead / self.read
        if share <= former_share + DEAD_SHARE_MORE:
            return None
        return (
            f"{self.dead:,} of the first {self.read:,} records of version "
            f"{self.version} are dead letters ({share:.1%}), of the last "
            f"{self.former_read:,} of version {self.former} {former_share:.1%} were"
        )


def read_health(
    connection: Connection[TupleRow], pipeline: str
) -> VersionHealth | None:
    """Return the version in force and its health, in the caller's transaction.

    Returns:
        None if the version is not watched, or not any more.
    """
    with connection.cursor(row_factory=class_row(VersionHealth)) as cursor:
        health = cursor.execute(_SQL["health"], {"pipeline": pipeline}).fetchone()
    # Check even when the watch is over: the last batch may make the version worse.
    if health is None or (health.is_over and health.find_worse() is None):
        return None
    return health
