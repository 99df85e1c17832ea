"""The peer that uses only Postgres: a unique index and ON CONFLICT DO NOTHING.

The table holds only the key. COPY fills it before its index is created, which no reader
of a stream could do. The measurement begins after that, with batches that are staged by
COPY, as Tallyweir's are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
from psycopg.rows import TupleRow

from services.dev.bench.id_batches import BATCH, I64Array, new_in
from services.dev.bench.rates import wrong_result
from services.dev.bench.server_bytes import read_log_bytes
from sinks.postgres.server.connection import connect
from sinks.seen_ids.id_hash import FINGERPRINT_BYTES, hash_parts, to_bytes
from sinks.seen_ids.part_words import KEY_BYTES, Part, Tag

TABLE = "bench_seen_id"
_STAGED = "bench_staged_id"
_INTEGER_BYTES = 8
_MICRO = 1_000_000
#: Any key will do: fingerprints look random under each of them.
_KEY = b"bench".ljust(KEY_BYTES, b".")

_SET_UP = (
    f"DROP TABLE IF EXISTS {TABLE}, {_STAGED}",
    f"CREATE TABLE {TABLE} (id uuid NOT NULL)",
    f"CREATE UNLOGGED TABLE {_STAGED} (id uuid NOT NULL)",
)
_INDEX = f"CREATE UNIQUE INDEX ON {TABLE} (id)"
_INSERT = f"INSERT INTO {TABLE} SELECT id FROM {_STAGED} ON CONFLICT DO NOTHING"  # noqa: S608 - constants
_SIZES = f"SELECT pg_table_size('{TABLE}'), pg_indexes_size('{TABLE}')"

#: The header of binary COPY: a signature, flags, and the length of an extension.
_COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"
_COPY_ROW = np.dtype(
    [("columns", ">i2"), ("length", ">i4"), ("id", f"V{FINGERPRINT_BYTES}")]
)


def measure_unique_index(
    dsn: str, size: int, batches: Sequence[I64Array]
) -> dict[str, Any]:
    """Insert batches into a table of ``size`` keys.

    Raises:
        FatalError: ``BENCH_WRONG``: it did not insert exactly the new keys.
    """
    with connect(dsn, application_name="bench") as connection:
        began = time.perf_counter()
        _fill(connection, size)
        filled = time.perf_counter() - began
        heap, index = _row(connection, _SIZES)
        log_before = read_log_bytes(dsn)
        spent = [_insert(connection, batch) for batch in batches]
        log_after = read_log_bytes(dsn)
        connection.execute(f"DROP TABLE {TABLE}, {_STAGED}")
    events = sum(map(len, batches))
    staging = sum(one for one, _ in spent) / events * _MICRO
    inserting = sum(one for _, one in spent) / events * _MICRO
    return {
        "us_per_event": staging + inserting,
        "staging_us": staging,
        "inserting_us": inserting,
        "postgres_bytes_per_id": (heap + index) / size,
        "log_bytes_per_event": (log_after - log_before) / events,
        "filled_seconds": filled,
    }


def _fill(connection: psycopg.Connection[TupleRow], size: int) -> None:
    for statement in _SET_UP:
        connection.execute(statement)
    for begin in range(0, size, BATCH):
        numbers = np.arange(begin, min(begin + BATCH, size), dtype=np.int64)
        _copy(connection, f"COPY {TABLE} FROM STDIN (FORMAT binary, FREEZE)", numbers)
    connection.execute(_INDEX)
    connection.commit()
    connection.autocommit = True
    connection.execute(f"ANALYZE {TABLE}")
    # Each run begins at the same distance from the next checkpoint.
    connection.execute("CHECKPOINT")
    connection.autocommit = False


def _insert(
    connection: psycopg.Connection[TupleRow], batch: I64Array
) -> tuple[float, float]:
    """Return the seconds spent on staging a batch and on inserting its new keys."""
    began = time.perf_counter()
    _copy(connection, f"COPY {_STAGED} FROM STDIN (FORMAT binary)", batch)
    connection.commit()
    staged = time.perf_counter()
    inserted = connection.execute(_INSERT).rowcount
    connection.commit()
    connection.execute(f"TRUNCATE {_STAGED}")
    connection.commit()
    ended = time.perf_counter()
    if inserted != new_in(len(batch)):
        raise wrong_result(
            f"The unique index took {inserted} of {new_in(len(batch))} new keys."
        )
    return staged - began, ended - staged


def _copy(
    connection: psycopg.Connection[TupleRow], statement: str, numbers: I64Array
) -> None:
    with connection.cursor().copy(statement.encode()) as copy:
        copy.write(encode_keys(numbers))


def encode_keys(numbers: I64Array) -> bytes:
    """Encode the keys of events for binary COPY."""
    part = Part(
        tag=Tag.INTEGER,
        data=numbers.view(np.uint8),
        offsets=np.arange(len(numbers) + 1, dtype=np.int64) * _INTEGER_BYTES,
    )
    rows = np.empty(len(numbers), dtype=_COPY_ROW)
    rows["columns"] = 1
    rows["length"] = FINGERPRINT_BYTES
    rows["id"] = np.frombuffer(
        to_bytes(hash_parts([part], _KEY)), dtype=f"V{FINGERPRINT_BYTES}"
    )
    return _COPY_HEAD + rows.tobytes() + _COPY_END


def _row(connection: psycopg.Connection[TupleRow], statement: str) -> TupleRow:
    found = connection.execute(statement.encode()).fetchone()
    assert found is not None
    return found
