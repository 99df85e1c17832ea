"""Count how often values of possible IDs come again, exactly and in bounded memory.

Each value is kept as a hash of 16 bytes, beside one of its payload, in a temporary
database of SQLite on disk: about 60 bytes for each value. Memory does not grow with it,
because SQLite sorts on disk. Two different values share a hash with a probability below
1e-18 for a billion values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from types import TracebackType
from typing import Self

_HASH_BYTES = 16
_ROWS_BUFFERED = 10_000
#: In KiB, as SQLite writes it.
_CACHE = -32_768


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


def hash_of(value: bytes) -> bytes:
    """Return the hash of a value or a payload."""
    return blake2b(value, digest_size=_HASH_BYTES).digest()


class IdentityStore:
    """Keeps the values of several possible IDs, by number, until they are counted."""

    def __init__(self) -> None:
        # An empty name is a database on disk that goes when it is closed.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = {_CACHE}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA temp_store = FILE")
        self._database.execute(
            "CREATE TABLE seen (place INTEGER PRIMARY KEY, candidate INTEGER, "
            "id BLOB, payload BLOB)"
        )
        self._rows: list[tuple[int, bytes, bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def add(self, candidate: int, value: bytes, payload: bytes) -> None:
        """Note the hash of a value, and that of its payload."""
        self._rows.append((candidate, value, payload))
        if len(self._rows) >= _ROWS_BUFFERED:
            self._flush()

    def drop(self, candidates: Iterable[int]) -> None:
        """Forget the values of some possible IDs."""
        self._flush()
        self._database.executemany(
            "DELETE FROM seen WHERE candidate = ?", ((one,) for one in candidates)
        )

    def count(self, candidate: int) -> IdentityCounts:
        """Count the values of one possible ID."""
        self._flush()
        # Beside min(), SQLite returns the other columns of the row that has it.
        (row,) = self._database.execute(
            """
            SELECT count(*), coalesce(sum(kept), 0), coalesce(sum(total), 0),
                   coalesce(max(total), 0)
              FROM (SELECT id, min(first), copies AS kept, sum(copies) AS total
                      FROM (SELECT id, payload, count(*) AS copies, min(place) AS first
                              FROM seen WHERE candidate = ? GROUP BY id, payload)
                     GROUP BY id)
            """,
            (candidate,),
        ).fetchall()
        distinct, kept, total, most = row
        return IdentityCounts(
            values=total,
            distinct=distinct,
            repeats=kept - distinct,
            conflicts=total - kept,
            most=most,
        )

    def _flush(self) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO seen (candidate, id, payload) VALUES (?, ?, ?)", self._rows
        )
        self._database.execute("COMMIT")
        self._rows.clear()
