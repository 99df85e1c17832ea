"""What a steered pipeline must hold, worked out by the simplest means.

A pipeline is the list of its standing batches, each with what became of its records;
all else follows from these. A snapshot is a copy of the list, a restore puts it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from integration_tests.harness.postgres_driver import PIPELINE
from integration_tests.harness.steered_pipeline import (
    TABLES,
    Fates,
    count_windows,
    steered_layout,
)
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.steering.fork import shadow_of


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
    def reach(self) -> int:
        """Up to where it has read, wherever it goes on; what it skipped counts."""
        return max([self.next_offset, *(one.until_offset for one in self.batches)])

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
    """A snapshot that can be restored.

    Attributes:
        switches: How often its pipeline had changed places with another one.
    """

    name: str
    standing: Standing
    after_sequence: int
    version: int
    switches: int


@dataclass(kw_only=True)
class SteeringModel:
    """A pipeline, and what was done to it.

    Attributes:
        is_in_front: Whether it writes the tables that readers know, or their shadows.
        epoch: The newest claim, of drivers and acts.
        last_sequence: Never falls: numbers are not used again.
        versions: Which of both layouts each version is.
        switches: How often it has changed places with another one.
    """

    name: str = PIPELINE
    is_in_front: bool = True
    standing: Standing = field(default_factory=Standing)
    snapshots: dict[str, ModelSnapshot] = field(default_factory=dict)
    epoch: int = 0
    last_sequence: int = 0
    is_paused: bool = False
    versions: list[int] = field(default_factory=lambda: [0])
    switches: int = 0
    _moves: int = 0

    @property
    def shadows(self) -> dict[str, str]:
        """The tables that it writes instead of those that readers know."""
        if self.is_in_front:
            return {}
        return {table: shadow_of(table, self.name) for table in TABLES}

    @property
    def layout(self) -> PipelineLayout:
        """The version in force."""
        return self._lay_out(self.versions[-1])

    @property
    def other_layout(self) -> PipelineLayout:
        """The version that is not in force."""
        return self._lay_out(1 - self.versions[-1])

    def _lay_out(self, version: int) -> PipelineLayout:
        return steered_layout(version, pipeline=self.name, shadows=self.shadows)

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

    def change_version(self) -> None:
        """Let the other layout be the next version."""
        self.versions.append(1 - self.versions[-1])

    def take(self, name: str) -> None:
        """Keep what stands now."""
        self.snapshots[name] = ModelSnapshot(
            name=name,
            standing=self.standing,
            after_sequence=self.last_sequence,
            version=self.versions[-1],
            switches=self.switches,
        )

    def refusal(self, name: str) -> str | None:
        """Return the code by which a restore is refused; None if it is done."""
        kept = self.snapshots[name]
        if kept.switches != self.switches:
            return "RESTORE_PAST_ACT"
        return None if kept.version == self.versions[-1] else "DEFINITION_SINCE"

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

    def fork(self, name: str) -> SteeringModel:
        """Return what goes on from here in the shadow; its first claim is the act's."""
        return replace(
            self,
            name=name,
            is_in_front=False,
            snapshots={},
            epoch=self.epoch + 1,
            is_paused=False,
            versions=list(self.versions),
        )

    def switch(self, other: SteeringModel) -> None:
        """Change places."""
        for one in (self, other):
            one.is_in_front = not one.is_in_front
            one.switches += 1
