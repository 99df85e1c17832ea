"""Committed runs of the seen-ID catalog, streamed to who answers claims."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.sqlstate import translated
from sinks.postgres.statements import load_statements
from sinks.seen_ids.run import Run

_SQL = load_statements("sinks.postgres", "runs.sql")


class PostgresRunSource:
    """Reads one pipeline's runs over a connection that the caller owns."""

    def __init__(self, connection: psycopg.Connection[TupleRow], pipeline: str) -> None:
        self._connection = connection
        self._pipeline = pipeline

    def fetch_runs(
        self,
        *,
        after_sequence: int,
        through_sequence: int,
        live_from_bucket: int,
    ) -> Iterator[tuple[int, Run]]:
        """Stream the committed runs, in order of their batch.

        Rows come one by one, so that a cold start needs little memory.

        Raises:
            RetryableError: The server or the connection failed.
            FatalError: A stored run is damaged.
        """
        with (
            translated("reading seen IDs"),
            self._connection.transaction(),
            self._connection.cursor(binary=True) as cursor,
        ):
            rows = cursor.stream(
                _SQL["fetch_runs"],
                {
                    "pipeline": self._pipeline,
                    "after_sequence": after_sequence,
                    "through_sequence": through_sequence,
                    "live_from_bucket": live_from_bucket,
                },
            )
            for sequence, bucket, fingerprints, payload_hashes in rows:
                yield (
                    sequence,
                    Run.decode(
                        bucket=bucket,
                        fingerprints=fingerprints,
                        payload_hashes=payload_hashes,
                    ),
                )
