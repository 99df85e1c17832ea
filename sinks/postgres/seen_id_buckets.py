"""The partitions of the seen-ID catalog: one per bucket of event time and pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.lock_attempts import LockAttempts
from sinks.postgres.naming import bucket_of_runs, runs_of_pipeline
from sinks.postgres.session import Session
from sinks.postgres.statements import load_statements
from sinks.protocol.errors import ConfigurationError

_PUBLISH = load_statements("sinks.postgres", "publish.sql")
_RUNS = load_statements("sinks.postgres", "runs.sql")

#: Buckets that one transaction makes: each holds its locks until the end.
_CREATED_AT_ONCE = 100
#: Of the locks that a server has room for, a bucket's share. Who touches all buckets in
#: one transaction, as a publish of history or a driver that starts does, has four locks
#: in each: the table and its key, and the same of what is stored out of line. A third
#: of the room is left to everybody else.
_LOCKS_PER_BUCKET = 6


class SeenIdBuckets:
    """Makes a pipeline's buckets before they are needed, and drops them after.

    Args:
        session: To the home database.
        pipeline_number: The pipeline's.
        bucket_seconds: How much event time a bucket covers.
        clock: Seconds, from whatever beginning.
    """

    def __init__(
        self,
        session: Session,
        *,
        pipeline_number: int,
        bucket_seconds: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._dropping = LockAttempts(session, clock=clock)
        self._pipeline_number = pipeline_number
        self._width_us = bucket_seconds * 1_000_000
        self._known = session.run("reading the catalog", self._read)

    def create(self, buckets: Iterable[int], *, live_from_us: int | None) -> None:
        """Make buckets that are not there yet, some hundred in a transaction.

        Args:
            buckets: That a batch has IDs for.
            live_from_us: Buckets that end by then will be dropped; None for no bucket.

        Raises:
            ConfigurationError: ``TOO_MANY_BUCKETS``: there would be more than the
                server has locks for; none was made.
            RetryableError: The server is unreachable, or somebody makes or drops
                buckets for long.

        Crash:
            Empty partitions stay behind, which is what the next batch wants.
        """
        wanted = set(buckets)
        missing = sorted(wanted - self._known)
        if missing:
            alive = {one for one in self._known if not self._is_past(one, live_from_us)}
            self._session.run(
                "counting locks", partial(self._check_locks, len(alive | wanted))
            )
        for begin in range(0, len(missing), _CREATED_AT_ONCE):
            portion = missing[begin : begin + _CREATED_AT_ONCE]
            self._session.run(
                "creating buckets of the catalog", partial(self._create, portion)
            )
            self._known.update(portion)

    def drop_before(self, live_from_us: int) -> None:
        """Drop the buckets that end at or before an instant of event time.

        One that somebody reads stays, and so do those after it, until the next time
        that is a minute later or more.

        Raises:
            RetryableError: The server is unreachable.

        Crash:
            Each bucket is there or not, and what is not live may be either.
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

    def _check_locks(
        self, buckets: int, connection: psycopg.Connection[TupleRow]
    ) -> None:
        ((locks, transactions),) = connection.execute(_RUNS["lock_settings"])
        most = locks * transactions // _LOCKS_PER_BUCKET
        if buckets <= most:
            return
        width_s = self._width_us // 1_000_000
        needed = -(-buckets * _LOCKS_PER_BUCKET // transactions)
        raise ConfigurationError(
            "TOO_MANY_BUCKETS",
            saw=f"The seen IDs of the pipeline would be in {buckets} buckets, each of "
            f"{width_s} s of event time. With max_locks_per_transaction = {locks} the "
            f"server has room for the locks of {most}.",
            why="Each bucket is a table, and whoever uses all of them in a transaction "
            "would be out of shared memory. Nothing was published.",
            fix="Bring the history oldest first, in batches or runs of less than "
            f"{most * width_s} s of event time each; or begin under another pipeline "
            "name with a longer deduplicate.horizon, of which a bucket is an eighth "
            "from the first start on; or ALTER SYSTEM SET max_locks_per_transaction = "
            f"{needed} and restart the server.",
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
