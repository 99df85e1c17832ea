"""The partitions of the seen-ID catalog: one per bucket of event time and pipeline."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.naming import bucket_of_runs, runs_of_pipeline
from sinks.postgres.session import Session
from sinks.postgres.statements import load_statements

_PUBLISH = load_statements("sinks.postgres", "publish.sql")
_RUNS = load_statements("sinks.postgres", "runs.sql")


class SeenIdBuckets:
    """Makes a pipeline's buckets before they are needed, and drops them after.

    Args:
        session: To the home database.
        pipeline_number: The pipeline's.
        bucket_seconds: How much event time a bucket covers.
    """

    def __init__(
        self, session: Session, *, pipeline_number: int, bucket_seconds: int
    ) -> None:
        self._session = session
        self._pipeline_number = pipeline_number
        self._width_us = bucket_seconds * 1_000_000
        self._known = session.run("reading the catalog", self._read)

    def create(self, buckets: Iterable[int]) -> None:
        """Make buckets that are not there yet.

        Crash:
            An empty partition stays behind, which is what the next batch wants.
        """

        def create(connection: psycopg.Connection[TupleRow]) -> None:
            connection.execute(_PUBLISH["begin_settings"])
            for bucket in missing:
                connection.execute(_RUNS["create_bucket"], self._named(bucket))

        missing = sorted(set(buckets) - self._known)
        if missing:
            self._session.run("creating buckets of the catalog", create)
            self._known.update(missing)

    def drop_before(self, live_from_us: int) -> None:
        """Drop the buckets that end at or before an instant of event time.

        Raises:
            RetryableError: Someone reads one of them; it stays until next time.

        Crash:
            Each bucket is there or not, and what is not live may be either.
        """

        def drop(connection: psycopg.Connection[TupleRow]) -> None:
            # Not to wait long for those who still read it.
            connection.execute("SET LOCAL lock_timeout = '1s'")
            connection.execute(_RUNS["drop_bucket"], self._named(bucket))

        for bucket in sorted(self._known):
            if bucket * 1_000_000 + self._width_us > live_from_us:
                return
            self._session.run("dropping a bucket of the catalog", drop)
            self._known.discard(bucket)

    def _read(self, connection: psycopg.Connection[TupleRow]) -> set[int]:
        rows = connection.execute(
            _RUNS["bucket_tables"],
            {"pipeline_runs": runs_of_pipeline(self._pipeline_number)},
        )
        return {bucket_of_runs(row[0]) for row in rows}

    def _named(self, bucket: int) -> dict[str, int]:
        return {"pipeline_number": self._pipeline_number, "bucket": bucket}
