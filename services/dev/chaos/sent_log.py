"""The reference for all checks: what the broker reported about every record.

The senders write it before and after they commit a transaction, so that its outcome is
never guessed: ``open`` means that the outcome is unknown so far.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from tallyweir.services.dev.chaos.workload import Record, RecordKind

#: Partition and offset of a record.
Place = tuple[int, int]


class Outcome(StrEnum):
    """The outcome of a producer transaction."""

    OPEN = "open"
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
    """Held in memory, because only its own run reads it; safe for several senders."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes: list[Outcome] = []
        self._undecided: dict[int, list[tuple[Place | None, SentRecord]]] = {}
        self._committed: dict[Place, SentRecord] = {}
        self._aborted = 0

    def begin(self) -> int:
        """Record that a transaction begins; return its number."""
        with self._lock:
            self._outcomes.append(Outcome.OPEN)
            return len(self._outcomes) - 1

    def write(
        self, transaction: int, records: Sequence[Record], places: dict[int, Place]
    ) -> None:
        """Record the records of a transaction and the place of each.

        Args:
            transaction: Its number.
            records: All of its records.
            places: The places that the broker reported, by index into ``records``.
        """
        with self._lock:
            self._undecided[transaction] = [
                (
                    places.get(index),
                    SentRecord(
                        kind=record.kind,
                        event_id=record.event.event_id,
                        fingerprint=record.event.fingerprint,
                        site=record.event.site,
                        amount=record.event.amount,
                        happened_at_us=record.event.happened_at_us,
                    ),
                )
                for index, record in enumerate(records)
            ]

    def decide(self, transaction: int, outcome: Outcome) -> None:
        """Record the outcome of a transaction."""
        with self._lock:
            self._outcomes[transaction] = outcome
            written = self._undecided.pop(transaction, [])
            if outcome is Outcome.ABORTED:
                self._aborted += len(written)
                return
            for place, record in written:
                assert place is not None, "only reported records are committed"
                self._committed[place] = record

    def read_committed(self) -> dict[Place, SentRecord]:
        """Return every record that Kafka shows to consumers of committed records."""
        with self._lock:
            return dict(self._committed)

    def save_committed(self, file: Path) -> None:
        """Write the committed records to a file, for people who examine the run."""
        with file.open("w", encoding="utf-8") as lines:
            for (partition, offset), record in self.read_committed().items():
                place = {"partition": partition, "offset": offset}
                lines.write(json.dumps(place | asdict(record)) + "\n")

    def count_aborted(self) -> int:
        """Count the records of aborted transactions."""
        with self._lock:
            return self._aborted

    def count_transactions(self) -> dict[str, int]:
        """Count the transactions by outcome; ``open`` ones have none."""
        with self._lock:
            return {
                str(outcome): count
                for outcome, count in sorted(Counter(self._outcomes).items())
            }
