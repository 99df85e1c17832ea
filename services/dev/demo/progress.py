"""How far a demo has come, and who wants to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Counts so far.

    Attributes:
        sent: Messages that were given to the producer.
        read: Records that the published batches have read.
        committed: Of these, events that became results.
        duplicates: Of these, repeats that were dropped.
        dead: Of these, dead letters.
        batch: Number of the last published batch.
        kills: Drivers that died in mid-batch.
    """

    sent: int = 0
    read: int = 0
    committed: int = 0
    duplicates: int = 0
    dead: int = 0
    batch: int = 0
    kills: int = 0


class Watcher(Protocol):
    """Who watches a demo."""

    def tell(self, text: str) -> None:
        """Something worth a line has happened."""

    def show(self, progress: Progress) -> None:
        """The counts have changed; called often."""
