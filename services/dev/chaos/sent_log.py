"""The reference for all checks: what the broker reported about every record.

The senders write it before and after they commit a transaction, so that its outcome is
never guessed: ``open`` means that the outcome is unknown so far.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tallyweir.services.dev.chaos.workload import Record, RecordKind
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = {
    name: statement.as_string()
    for name, statement in load_statements(
        "tallyweir.services.dev.chaos", "sent_log.sql"
    ).items()
}

#: Partition and offset of a record.
Place = tuple[int, int]


class Outcome(StrEnum):
    """The outcome of a producer transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRecord:
    """One record that a committed transaction left in Kafka."""

    kind: RecordKind
    event_id: str
    fingerprint: str
    site: str
    amount: int
    happened_at_us: int


class SentLog:
    """A SQLite file; safe for several senders at once.

    Args:
        path: The file, which the log creates.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = sqlite3.connect(path, check_same_thread=False)
        # Only the run that writes the log uses it, so it need not survive a crash.
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("PRAGMA journal_mode = MEMORY")
        self._file.execute(_SQL["create_transaction"])
        self._file.execute(_SQL["create_record"])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def begin(self) -> int:
        """Record that a transaction begins; return its number."""
        with self._lock, self._file:
            number = self._file.execute(_SQL["begin"]).lastrowid
        assert number is not None
        return number

    def write(
        self, transaction: int, records: Sequence[Record], places: dict[int, Place]
    ) -> None:
        """Record the records of a transaction and the place of each.

        Args:
            transaction: Its number.
            records: All of its records.
            places: The places that the broker reported, by index into ``records``.
        """
        with self._lock, self._file:
            self._file.executemany(
                _SQL["write_record"],
                (
                    (
                        transaction,
                        record.kind,
                        record.event.event_id,
                        record.event.fingerprint,
                        record.event.site,
                        record.event.amount,
                        record.event.happened_at_us,
                        *places.get(index, (None, None)),
                    )
                    for index, record in enumerate(records)
                ),
            )

    def decide(self, transaction: int, outcome: Outcome) -> None:
        """Record the outcome of a transaction."""
        with self._lock, self._file:
            self._file.execute(_SQL["decide"], (outcome, transaction))

    def read_committed(self) -> dict[Place, SentRecord]:
        """Read every record that Kafka shows to consumers of committed records."""
        with self._lock:
            rows = self._file.execute(_SQL["committed"]).fetchall()
        return {
            (partition, offset): SentRecord(
                kind=RecordKind(kind),
                event_id=event_id,
                fingerprint=fingerprint,
                site=site,
                amount=amount,
                happened_at_us=happened_at_us,
            )
            for (
                partition,
                offset,
                kind,
                event_id,
                fingerprint,
                site,
                amount,
                happened_at_us,
            ) in rows
        }

    def count_aborted(self) -> int:
        """Count the records of aborted transactions."""
        with self._lock:
            (count,) = self._file.execute(_SQL["count_aborted"]).fetchone()
        return int(count)

    def count_transactions(self) -> dict[str, int]:
        """Count the transactions by outcome; ``open`` ones have none."""
        with self._lock:
            return dict(self._file.execute(_SQL["count_transactions"]).fetchall())
