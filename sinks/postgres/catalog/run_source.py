"""Streams committed IDs of the seen-ID catalog to the holder that answers claims."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.catalog.chunk_reader import PostgresChunkReader
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.seen_ids.bloom_filter import BloomFilter
from tallyweir.sinks.seen_ids.claim import NO_HASH
from tallyweir.sinks.seen_ids.entries import Entries
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.stored_chunks import StoredChunks

_SQL = load_statements("tallyweir.sinks.postgres.catalog", "runs.sql")


class PostgresRunSource:
    """Reads one pipeline's IDs over a connection that the caller owns."""

    def __init__(self, connection: psycopg.Connection[TupleRow], pipeline: str) -> None:
        self._connection = connection
        self._pipeline = pipeline

    def fetch_runs(
        self,
        *,
        after_sequence: int,
        through_sequence: int,
        live_from_bucket: int,
    ) -> Iterator[tuple[int, Run | StoredChunks]]:
        """Stream the IDs of some batches from one snapshot.

        Rows come one by one, so that a cold start needs little memory. For merged
        buckets it reads only the filters; these chunks look IDs up over a connection
        of their own.

        Raises:
            RetryableError: The server or the connection failed.
            FatalError: A stored row is damaged.
        """
        wanted = {
            "pipeline": self._pipeline,
            "after_sequence": after_sequence,
            "through_sequence": through_sequence,
            "live_from_bucket": live_from_bucket,
        }
        with (
            translated("reading seen IDs"),
            self._connection.transaction(),
            self._connection.cursor(binary=True) as cursor,
        ):
            cursor.execute(_SQL["one_snapshot"])
            yield from self._fetch_filters(cursor, wanted)
            rows = cursor.stream(_SQL["fetch_runs"], wanted)
            for sequence, bucket, *stored in rows:
                run = _decode(bucket, stored, after_sequence, through_sequence)
                if run is not None:
                    yield sequence, run

    def _fetch_filters(
        self, cursor: psycopg.Cursor[TupleRow], wanted: dict[str, Any]
    ) -> Iterator[tuple[int, StoredChunks]]:
        reader: PostgresChunkReader | None = None
        rows = cursor.stream(_SQL["fetch_filters"], wanted)
        for described, chunks in groupby(rows, key=itemgetter(0, 1, 2, 3)):
            bucket, sequence, oldest, count = described
            ids = np.zeros(count, dtype=np.int64)
            shares = {}
            for *_, chunk, chunk_ids, share in chunks:
                ids[chunk] = chunk_ids
                shares[chunk] = share
            if reader is None:
                reader = PostgresChunkReader.beside(self._connection, self._pipeline)
            yield (
                oldest,
                StoredChunks(
                    bucket=bucket,
                    sequence=sequence,
                    count=count,
                    ids=ids,
                    bloom=BloomFilter.joined(shares, count=count),
                    reader=reader,
                ),
            )


def _decode(bucket: int, stored: list[Any], after: int, through: int) -> Run | None:
    """Return a run, or a chunk's entries of some batches; None without entries."""
    oldest, fingerprints, payload_hashes, sequences = stored
    if sequences is None:
        return Run.decode(
            bucket=bucket, fingerprints=fingerprints, payload_hashes=payload_hashes
        )
    entries = Entries.decode(
        bucket=bucket,
        oldest=oldest,
        fingerprints=fingerprints,
        payload_hashes=payload_hashes,
        sequences=sequences,
    )
    is_asked = (entries.sequences > after) & (entries.sequences <= through)
    entries = entries.take(is_asked).newest()
    if not len(entries):
        return None
    hashes = entries.payload_hashes
    return Run(
        bucket=bucket,
        fingerprints=np.column_stack([entries.hi, entries.lo]),
        payload_hashes=hashes if (hashes != NO_HASH).any() else None,
    )
