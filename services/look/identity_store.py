"""Count how often values of possible IDs come again, exactly and in bounded memory.

Each value is kept as a hash of 16 bytes, beside one of 8 bytes of its payload, in a
temporary file. Two different values share a hash with a probability below 1e-18 for a
billion values, and two payloads of one value with one of 2**-64.

A file is counted in chunks. If it has more than one, it is first split by hash, so that
the values of each part fit into memory, however often each of them comes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Self

import numpy as np
import pyarrow as pa

from tallyweir.sinks.seen_ids.event_hashes import payload_hashes
from tallyweir.sinks.seen_ids.id_hash import KEY_BYTES
from tallyweir.sinks.seen_ids.ordering import I64Array, U64Array

#: The rows that are in memory together.
CHUNK_ROWS = 1 << 20
_PARTS_MAX = 256
_COLUMNS = 3
_ROW_BYTES = _COLUMNS * 8
_WORD_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityCounts:
    """How values of one possible ID come again.

    Attributes:
        values: All values.
        distinct: The different values.
        repeats: Values that came before with the same payload.
        conflicts: Values that came before, first with another payload.
        most: How often the most frequent value comes.
    """

    values: int
    distinct: int
    repeats: int
    conflicts: int
    most: int


class IdentityStore:
    """Keeps the values of several possible IDs, by number, until they are counted."""

    def __init__(self) -> None:
        self._keys = [secrets.token_bytes(KEY_BYTES) for _ in range(2)]
        self._files: dict[int, IO[bytes]] = {}
        self._counts: dict[int, IdentityCounts] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drop(list(self._files))

    def hash_payloads(self, payloads: pa.Array) -> U64Array:
        """Return the hash of each payload."""
        return payload_hashes(payloads, self._keys[0])

    def add(self, candidate: int, values: pa.Array, payloads: U64Array) -> None:
        """Note values, in the order in which they came, and their payloads' hashes."""
        rows = np.empty((len(values), _COLUMNS), np.uint64)
        for column, key in enumerate(self._keys):
            rows[:, column] = payload_hashes(values, key)
        rows[:, 2] = payloads
        if candidate not in self._files:
            self._files[candidate] = TemporaryFile()  # noqa: SIM115 - until dropped
        self._files[candidate].write(rows.data)
        self._counts.pop(candidate, None)

    def drop(self, candidates: Iterable[int]) -> None:
        """Forget the values of some possible IDs."""
        for candidate in candidates:
            file = self._files.pop(candidate, None)
            if file is not None:
                file.close()

    def count(self, candidate: int) -> IdentityCounts:
        """Count the values of one possible ID."""
        if candidate not in self._files:
            return IdentityCounts(values=0, distinct=0, repeats=0, conflicts=0, most=0)
        if candidate not in self._counts:
            self._counts[candidate] = self._count(candidate)
        return self._counts[candidate]

    def _count(self, candidate: int) -> IdentityCounts:
        file = self._files[candidate]
        rows = file.tell() // _ROW_BYTES
        parts = 1
        while parts < _PARTS_MAX and parts * CHUNK_ROWS < rows:
            parts *= 2
        counts = [_count(one) for one in _split(file, parts)]
        # What is added later goes behind what was there.
        file.seek(0, 2)
        totals = {
            one.name: sum(getattr(part, one.name) for part in counts)
            for one in fields(IdentityCounts)
        }
        return IdentityCounts(**{**totals, "most": max(part.most for part in counts)})


def _split(file: IO[bytes], parts: int) -> Iterator[IO[bytes]]:
    """Yield files of the rows whose hashes begin alike, each in the same order."""
    if parts == 1:
        yield file
        return
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(parts)]
        shift = np.uint64(_WORD_BITS - parts.bit_length() + 1)
        for rows in _chunks(file):
            part = (rows[:, 0] >> shift).astype(np.int64)
            order = np.argsort(part, kind="stable")
            ends = np.bincount(part, minlength=parts).cumsum()
            sorted_rows = rows[order]
            for number, end in enumerate(ends.tolist()):
                start = ends[number - 1] if number else 0
                files[number].write(sorted_rows[start:end].data)
        yield from files


def _chunks(file: IO[bytes]) -> Iterator[U64Array]:
    file.seek(0)
    while data := file.read(CHUNK_ROWS * _ROW_BYTES):
        yield np.frombuffer(data, np.uint64).reshape(-1, _COLUMNS)


def _count(file: IO[bytes]) -> IdentityCounts:
    """Count the rows of a file, of which each chunk follows what came before it."""
    known = np.zeros((0, _COLUMNS), np.uint64)
    kept = total = np.zeros(0, np.int64)
    for chunk in _chunks(file):
        known, kept, total = _merge(known, kept, total, chunk)
    values = int(total.sum())
    same = int(kept.sum())
    return IdentityCounts(
        values=values,
        distinct=len(known),
        repeats=same - len(known),
        conflicts=values - same,
        most=int(total.max(initial=0)),
    )


def _merge(
    known: U64Array, kept: I64Array, total: I64Array, chunk: U64Array
) -> tuple[U64Array, I64Array, I64Array]:
    """Add rows to what is known of each value.

    Args:
        known: The first row of each value.
        kept: How many rows of it have the payload of the first.
        total: How many rows of it there are.
        chunk: The rows that follow.
    """
    rows = np.concatenate([known, chunk])
    one_each = np.ones(len(chunk), np.int64)
    order = _by_value(rows)
    rows = rows[order]
    kept = np.concatenate([kept, one_each])[order]
    total = np.concatenate([total, one_each])[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = rows[1:, 0] != rows[:-1, 0]
    is_first[1:] |= rows[1:, 1] != rows[:-1, 1]
    starts = np.flatnonzero(is_first)
    sizes = np.diff(starts, append=len(rows))
    is_kept = rows[:, 2] == np.repeat(rows[starts, 2], sizes)
    return (
        rows[starts],
        np.add.reduceat(np.where(is_kept, kept, 0), starts),
        np.add.reduceat(total, starts),
    )


def _by_value(rows: U64Array) -> I64Array:
    """Return an order in which rows of a value lie together, and stay as they were."""
    order = np.argsort(rows[:, 0])
    begins = rows[order, 0]
    is_like_next = begins[1:] == begins[:-1]
    # Most values come once, and the fast sort is not stable.
    again = np.zeros(len(rows), np.bool_)
    again[1:] = is_like_next
    again[:-1] |= is_like_next
    places = order[again]
    places.sort()
    order[again] = places[np.lexsort((rows[places, 1], rows[places, 0]))]
    return order
