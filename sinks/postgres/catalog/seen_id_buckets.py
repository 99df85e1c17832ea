"""The partitions of the seen-ID catalog: one per bucket of event time and pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import DatabaseLink
from tallyweir.sinks.postgres.server.locks import LockAttempts
from tallyweir.sinks.postgres.server.naming import bucket_of_runs, runs_of_pipeline
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.ports import RejectedBucket, RowsRejectedError

_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_RUNS = load_statements("tallyweir.sinks.postgres.catalog", "runs.sql")

#: Buckets that one transaction makes: it holds the locks of each until its end.
_CREATED_AT_ONCE = 100
#: A bucket's share of the locks that a server has room for. A transaction that touches
#: all buckets, as a publish of history or a driver's start does, has four locks in
#: each: the table and its key, and the same for its TOAST table. A third of the room is
#: left to other sessions.
_LOCKS_PER_BUCKET = 6

#: If more events than this lie in buckets without room, the cause is a history that was
#: read in too large a part, and not a few producers with wrong clocks.
_REJECTED_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """A server's room for locks, by its settings."""

    locks: int
    transactions: int

    @property
    def buckets(self) -> int:
        """Number of a pipeline's buckets that it has room for."""
        return self.locks * self.transactions // _LOCKS_PER_BUCKET


class SeenIdBuckets:
    """Makes a pipeline's buckets before they are needed, and drops them after.

    Args:
        link: The link to the home database.
        pipeline_number: The pipeline's number.
        bucket_seconds: Seconds of event time that a bucket covers.
        clock: Returns seconds since any fixed start.
    """

    def __init__(
        self,
        link: DatabaseLink,
        *,
        pipeline_number: int,
        bucket_seconds: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._dropping = LockAttempts(link, clock=clock)
        self._pipeline_number = pipeline_number
        self._width_us = bucket_seconds * 1_000_000
        self._known = link.run("reading the catalog", self._read)

    def create(
        self,
        buckets: Mapping[int, int],
        *,
        live_from_us: int | None,
        may_reject: bool = True,
    ) -> None:
        """Make missing buckets, at most ``_CREATED_AT_ONCE`` in a transaction.

        Args:
            buckets: Buckets that a batch has IDs for, with the number of its IDs.
            live_from_us: Buckets that end by then will be dropped; None if no bucket
                will be.
            may_reject: Whether events may become dead letters for lack of buckets.

        Raises:
            RowsRejectedError: There would be more buckets than the server has locks
                for. The error names the new buckets with the fewest IDs; no bucket was
                made.
            ConfigurationError: ``TOO_MANY_BUCKETS``: the same, but events may not be
                rejected, or too many would be.
            RetryableError: The server is unreachable, or another session takes long to
                make or drop buckets.

        Crash:
            Empty partitions stay behind, and the next batch uses them.
        """
        wanted = set(buckets)
        missing = sorted(wanted - self._known)
        if missing:
            alive = {one for one in self._known if not self._is_past(one, live_from_us)}
            room = self._link.run("counting locks", self._read_room)
            excess = len(alive | wanted) - room.buckets
            if excess > 0:
                # Among equals choose the oldest, which are forgotten first anyway.
                sparsest = sorted(missing, key=lambda one: (buckets[one], one))[:excess]
                rejected = sum(buckets[one] for one in sparsest)
                if may_reject and len(sparsest) == excess and rejected <= _REJECTED_MAX:
                    raise RowsRejectedError(
                        buckets=[self._rejected(one, room) for one in sparsest]
                    )
                raise self._too_many(len(alive | wanted), room)
        for begin in range(0, len(missing), _CREATED_AT_ONCE):
            portion = missing[begin : begin + _CREATED_AT_ONCE]
            self._link.run(
                "creating buckets of the catalog", partial(self._create, portion)
            )
            self._known.update(portion)

    def drop_before(self, live_from_us: int) -> None:
        """Drop the buckets that end at or before an instant of event time.

        If another session reads a bucket, that bucket and all later ones stay until the
        next call at least a minute later.

        Raises:
            RetryableError: The server is unreachable.

        Crash:
            Each bucket exists or not; for a bucket that is not live, either is fine.
        """
        for bucket in sorted(self._known):
            if not self._is_past(bucket, live_from_us):
                return
            if not self._dropping.run(
                "dropping a bucket of the catalog", partial(self._drop, bucket)
            ):
                return
            self._known.discard(bucket)

    def _is_past(self, bucket: int, live_from_us: int | None) -> bool:
        if live_from_us is None:
            return False
        return bucket * 1_000_000 + self._width_us <= live_from_us

    def _read(self, connection: psycopg.Connection[TupleRow]) -> set[int]:
        rows = connection.execute(
            _RUNS["bucket_tables"],
            {"pipeline_runs": runs_of_pipeline(self._pipeline_number)},
        )
        return {bucket_of_runs(row[0]) for row in rows}

    def _read_room(self, connection: psycopg.Connection[TupleRow]) -> _Room:
        ((locks, transactions),) = connection.execute(_RUNS["lock_settings"])
        return _Room(locks=locks, transactions=transactions)

    def _rejected(self, bucket: int, room: _Room) -> RejectedBucket:
        return RejectedBucket(
            bucket=bucket,
            detail=f"The server has room for {room.buckets} buckets of seen IDs, of "
            f"{self._width_us // 1_000_000} s of event time each, and others have more "
            "events.",
        )

    def _too_many(self, buckets: int, room: _Room) -> ConfigurationError:
        width_s = self._width_us // 1_000_000
        needed = -(-buckets * _LOCKS_PER_BUCKET // room.transactions)
        return ConfigurationError(
            "TOO_MANY_BUCKETS",
            saw=f"The seen IDs of the pipeline would be in {buckets} buckets, each of "
            f"{width_s} s of event time. With max_locks_per_transaction = {room.locks} "
            f"the server has room for the locks of {room.buckets}.",
            why="Each bucket is a table, and a transaction that locks all of them "
            "would exhaust the server's lock table. Nothing was published.",
            fix="Bring the history oldest first, in batches or runs of less than "
            f"{room.buckets * width_s} s of event time each; or start under "
            "another pipeline name with a longer deduplicate.horizon (the first "
            "start sets the bucket to an eighth of it); or ALTER SYSTEM SET "
            f"max_locks_per_transaction = {needed} and restart the server.",
        )

    def _create(
        self, buckets: Sequence[int], connection: psycopg.Connection[TupleRow]
    ) -> None:
        connection.execute(_PUBLISH["begin_settings"])
        for bucket in buckets:
            connection.execute(_RUNS["create_bucket"], self._named(bucket))

    def _drop(self, bucket: int, connection: psycopg.Connection[TupleRow]) -> None:
        connection.execute(_RUNS["drop_bucket"], self._named(bucket))

    def _named(self, bucket: int) -> dict[str, int]:
        return {"pipeline_number": self._pipeline_number, "bucket": bucket}
