"""Reads chunks of the seen-ID catalog, or slices of them, over a connection of its own.

Each statement is a transaction: a long transaction would keep buckets from being
dropped.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.seen_ids.entries import Entries
from tallyweir.sinks.seen_ids.id_hash import to_bytes
from tallyweir.sinks.seen_ids.ordering import U64Array
from tallyweir.sinks.seen_ids.stored_chunks import Slices

_SQL = load_statements("tallyweir.sinks.postgres.catalog", "runs.sql")

_WORD_MAX = 2**64 - 1


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
            else _decode(bucket, sequence, fingerprints, payload_hashes)
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
            last=_fingerprint(last_hi, _WORD_MAX),
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
            entries = _decode(bucket, oldest, fingerprints, payload_hashes, sequences)
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
                cursor.execute(_SQL[statement], {"pipeline": self._pipeline, **values})
                return cursor.fetchall()


def _decode(
    bucket: int,
    oldest: int,
    fingerprints: bytes,
    payload_hashes: bytes | None,
    sequences: bytes | None = None,
) -> Entries:
    return Entries.decode(
        bucket=bucket,
        oldest=oldest,
        fingerprints=fingerprints,
        payload_hashes=payload_hashes,
        sequences=sequences,
    )


def _fingerprint(hi: int, lo: int) -> bytes:
    return to_bytes(np.array([[hi, lo]], dtype=np.uint64))
