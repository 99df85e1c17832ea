"""What a steered pipeline must hold, worked out by the simplest means.

A pipeline is the list of its standing batches, each with what became of its records;
all else follows from these. A snapshot is a copy of the list, a restore puts it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from integration_tests.harness.steered_pipeline import (
    LAYOUTS,
    Fates,
    count_windows,
)
from sinks.postgres.home_layout import HomeLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBatch:
    """A batch that was published, and was not taken back."""

    sequence: int
    from_offset: int
    until_offset: int
    fates: Fates


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a snapshot keeps and a restore puts back.

    Attributes:
        position: The next offset to read; None before the first batch.
        moves: The moves of the position, each with a number of its own.
    """

    batches: tuple[ModelBatch, ...] = ()
    position: int | None = None
    moves: tuple[int, ...] = ()

    @property
    def next_offset(self) -> int:
        return self.position or 0

    @property
    def last_move(self) -> int:
        return max(self.moves, default=0)

    @property
    def committed(self) -> list[tuple[int, int]]:
        """Offset and number of each event that counts."""
        return sorted(pair for one in self.batches for pair in one.fates.committed)

    @property
    def numbers(self) -> set[int]:
        """The IDs that are remembered."""
        return {number for _, number in self.committed}

    @property
    def windows(self) -> list[tuple[datetime, int]]:
        return count_windows(number for _, number in self.committed)

    def put_aside(self, fate: str) -> list[tuple[int, int]]:
        """Offset and batch of each record that met a fate."""
        return sorted(
            (offset, one.sequence)
            for one in self.batches
            for offset, _ in getattr(one.fates, fate)
        )

    @property
    def read(self) -> set[int]:
        """Every offset that a standing batch has read."""
        return {
            offset
            for one in self.batches
            for offset in range(one.from_offset, one.until_offset)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """A snapshot that can be restored."""

    name: str
    standing: Standing
    after_sequence: int
    version: int


@dataclass(kw_only=True)
class SteeringModel:
    """A pipeline, and what was done to it.

    Attributes:
        epoch: The newest claim, of drivers and acts.
        last_sequence: Never falls: numbers are not used again.
        versions: Which of both layouts each version is.
        fork: What stood when it was forked.
    """

    standing: Standing = field(default_factory=Standing)
    snapshots: dict[str, ModelSnapshot] = field(default_factory=dict)
    epoch: int = 0
    last_sequence: int = 0
    is_paused: bool = False
    fork: Standing | None = None
    versions: list[int] = field(default_factory=lambda: [0])
    _moves: int = 0

    @property
    def layout(self) -> HomeLayout:
        """The version in force."""
        return LAYOUTS[self.versions[-1]]

    def publish(self, log: Sequence[int], length: int) -> None:
        """Let the batch of the next offsets count."""
        standing = self.standing
        first = standing.next_offset
        offsets = range(first, first + length)
        self.last_sequence += 1
        batch = ModelBatch(
            sequence=self.last_sequence,
            from_offset=first,
            until_offset=first + length,
            fates=Fates.of(((at, log[at]) for at in offsets), standing.numbers),
        )
        self.standing = replace(
            standing,
            batches=(*standing.batches, batch),
            position=first + length,
        )

    def reset(self, target: int) -> None:
        """Go on from another offset."""
        self._moves += 1
        self.standing = replace(
            self.standing, position=target, moves=(*self.standing.moves, self._moves)
        )

    def take(self, name: str) -> None:
        """Keep what stands now."""
        self.snapshots[name] = ModelSnapshot(
            name=name,
            standing=self.standing,
            after_sequence=self.last_sequence,
            version=self.versions[-1],
        )

    def restore(self, name: str) -> None:
        """Go back; snapshots of later batches go with it."""
        kept = self.snapshots[name]
        self.standing = kept.standing
        self.snapshots = {
            one.name: one
            for one in self.snapshots.values()
            if one.after_sequence <= kept.after_sequence
            and one.standing.last_move <= kept.standing.last_move
        }
