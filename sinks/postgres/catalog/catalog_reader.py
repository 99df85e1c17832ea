"""Reads the seen-ID catalog: committed IDs for the driver, tombstones for its tasks.

``PostgresRunSource`` streams runs to the holder that answers claims. Of merged buckets
it reads only the filters; ``PostgresChunkReader`` looks up their chunks over a
connection of its own, each statement in a transaction: a long transaction would keep
buckets from being dropped.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.seen_ids.bloom_filter import BloomFilter
from tallyweir.sinks.seen_ids.chunk import Entries
from tallyweir.sinks.seen_ids.claim import NO_HASH
from tallyweir.sinks.seen_ids.id_hash import to_bytes
from tallyweir.sinks.seen_ids.ordering import WORD_MAX, U64Array
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.stored_chunks import Slices, StoredChunks
from tallyweir.sinks.seen_ids.tombstones import Tombstones

_RUNS = load_statements("tallyweir.sinks.postgres.catalog", "runs.sql")


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
            cursor.execute(_RUNS["one_snapshot"])
            yield from self._fetch_filters(cursor, wanted)
            rows = cursor.stream(_RUNS["fetch_runs"], wanted)
            for sequence, bucket, *stored in rows:
                run = _run_of(bucket, stored, after_sequence, through_sequence)
                if run is not None:
                    yield sequence, run

    def _fetch_filters(
        self, cursor: psycopg.Cursor[TupleRow], wanted: dict[str, Any]
    ) -> Iterator[tuple[int, StoredChunks]]:
        reader: PostgresChunkReader | None = None
        rows = cursor.stream(_RUNS["fetch_filters"], wanted)
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


def _run_of(bucket: int, stored: list[Any], after: int, through: int) -> Run | None:
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


class PostgresChunkReader:
    """Reads the chunks of one pipeline, from any thread.

    Args:
        dsn: libpq connection string.
        pipeline: The pipeline whose chunks it reads.
        application_name: Name in ``pg_stat_activity``.
    """

    def __init__(self, dsn: str, pipeline: str, *, application_name: str) -> None:
        self._dsn = dsn
        self._name = application_name
        self._pipeline = pipeline
        self._opening = threading.Lock()
        self._connection: psycopg.Connection[TupleRow] | None = None

    @classmethod
    def beside(
        cls, connection: psycopg.Connection[TupleRow], pipeline: str
    ) -> PostgresChunkReader:
        """Read from the database of another connection, as the same role."""
        info = connection.info
        parameters: dict[str, Any] = dict(info.get_parameters())
        if info.password:
            parameters["password"] = info.password
        name = str(parameters.pop("application_name", ""))
        dsn = make_conninfo("", **parameters)
        return cls(dsn, pipeline, application_name=name)

    def find_in_slices(
        self, bucket: int, sequence: int, asked: Slices
    ) -> Mapping[int, Entries | None]:
        """Return the slices that may have the ID asked of them; None for others.

        Raises:
            RetryableError: The server or the connection failed.
            FatalError: A stored chunk is damaged.
        """
        rows = self._fetch(
            "find_in_slices",
            bucket=bucket,
            sequence=sequence,
            chunks=asked.chunks.tolist(),
            starts=asked.starts.tolist(),
            lengths=asked.lengths.tolist(),
            fingerprints=to_bytes(np.column_stack([asked.hi, asked.lo])),
        )
        return {
            number - 1: None
            if fingerprints is None
            else Entries.decode(
                bucket=bucket,
                oldest=sequence,
                fingerprints=fingerprints,
                payload_hashes=payload_hashes,
                sequences=None,
            )
            for number, fingerprints, payload_hashes in rows
        }

    def read_entries(
        self, bucket: int, through_sequence: int, first_hi: int, last_hi: int
    ) -> Entries:
        """Return the bucket's entries between two words, of batches through one.

        Raises:
            RetryableError: The server or the connection failed.
            FatalError: A stored chunk is damaged.
        """
        rows = self._fetch(
            "fetch_entries",
            bucket=bucket,
            through_sequence=through_sequence,
            first=_fingerprint(first_hi, 0),
            last=_fingerprint(last_hi, WORD_MAX),
        )
        nothing: U64Array = np.empty(0, dtype=np.uint64)
        parts = [
            Entries(
                hi=nothing,
                lo=nothing,
                payload_hashes=nothing,
                sequences=nothing.astype(np.int64),
            )
        ]
        for oldest, fingerprints, payload_hashes, sequences in rows:
            entries = Entries.decode(
                bucket=bucket,
                oldest=oldest,
                fingerprints=fingerprints,
                payload_hashes=payload_hashes,
                sequences=sequences,
            )
            begin = int(np.searchsorted(entries.hi, np.uint64(first_hi)))
            end = int(np.searchsorted(entries.hi, np.uint64(last_hi), side="right"))
            entries = entries.take(slice(begin, end))
            if sequences is not None:
                entries = entries.take(entries.sequences <= through_sequence)
            parts.append(entries)
        entries = Entries.joined(parts)
        # Chunks are in order; runs, as in a restored database, are not.
        follow = bool((entries.hi[1:] >= entries.hi[:-1]).all())
        return entries if follow else entries.sorted()

    def close(self) -> None:
        """Close the connection, if one was opened."""
        with self._opening:
            if self._connection is not None:
                self._connection.close()

    def _fetch(self, statement: str, **values: object) -> list[TupleRow]:
        with translated("looking up seen IDs"):
            with self._opening:
                if self._connection is None:
                    self._connection = connect(self._dsn, application_name=self._name)
                    self._connection.autocommit = True
                    # No caller knows which look-up is the last.
                    weakref.finalize(self, self._connection.close)
                connection = self._connection
            with connection.cursor(binary=True) as cursor:
                cursor.execute(_RUNS[statement], {"pipeline": self._pipeline, **values})
                return cursor.fetchall()


def _fingerprint(hi: int, lo: int) -> bytes:
    return to_bytes(np.array([[hi, lo]], dtype=np.uint64))


_ERASED = load_statements("tallyweir.sinks.postgres.catalog", "erased.sql")


def read_tombstones(connection: Connection[TupleRow], pipeline: str) -> Tombstones:
    """Return all tombstones of a pipeline.

    A process that works under a claim sees all of them: an erasure is an act, so it
    either was committed before the claim, or claims itself and fences the process.

    Args:
        connection: To the home, outside of a transaction.
        pipeline: Its name.

    Raises:
        RetryableError: The server went away.
    """
    values = {"pipeline": pipeline}
    with translated("reading erased events"):
        row = fetch_row(connection, _ERASED["erased_ids"], values)
        positions = connection.execute(_ERASED["erased_positions"], values).fetchall()
        connection.rollback()
    return Tombstones(bytes(row[0]), positions)
