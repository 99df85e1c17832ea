"""The progress of a demo, and the interface of its watcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoProgress:
    """Counts so far.

    Attributes:
        sent: Messages that were given to the producer.
        read: Records that the published batches have read.
        committed: Events among these that became results.
        duplicates: Repeats among these that were dropped.
        dead: Dead letters among these.
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
    """Gets lines and counts about the progress of a demo."""

    def tell(self, text: str) -> None:
        """Take a line about something that has happened."""

    def show(self, progress: DemoProgress) -> None:
        """Take the changed counts; called often."""
