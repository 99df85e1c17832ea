"""Binds the suite for several databases to the fakes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.recovery import StoredPosition
from tallyweir.sinks.testing.memory_home import MemoryDatabase
from tallyweir.sinks.testing.memory_participant import (
    MemoryParticipant,
    MemoryParticipantDatabase,
)
from tallyweir.sinks.testing.memory_server import LostAnswer
from tallyweir.sinks.testing.participant_harness import (
    BRANCHES,
    EVENTS,
    OTHER,
    DriverPorts,
    Lossy,
)
from tallyweir.sinks.testing.planned_batches import HOME, RESULTS, Position, staged_for


class MemoryParticipantHarness:
    """Binds the suite to ``MemoryHome`` and ``MemoryParticipant``."""

    def __init__(self) -> None:
        self.home = MemoryDatabase()
        self.other = MemoryParticipantDatabase(OTHER, BRANCHES[1:])

    def new_driver(self) -> DriverPorts:
        home = self.home.new_driver()
        home.claim_epoch()
        return DriverPorts(
            home=home, participant=MemoryParticipant(self.other, home.claim)
        )

    def stage(
        self, plan: BatchPlan, attempt: Attempt, branch: str, rows: Iterable[Position]
    ) -> None:
        staging = self.home.staging if branch == HOME else self.other.staging
        staging.stage(plan.key.epoch, attempt, rows, staged_for(branch))

    def published(self, database: str) -> list[int]:
        home = self.home.state.tables.get(RESULTS, ())
        rows = home if database == HOME else self.other.state.rows
        return sorted(offset for _, offset in rows)

    def visible_through(self) -> int:
        return self.home.state.visible_through

    def refuse(self, offsets: Iterable[int]) -> None:
        self.other.refused.update((EVENTS, offset) for offset in offsets)

    def empty_staging(self) -> None:
        self.other.staging.lose_rows()

    def forget_newest_batch(self, database: str) -> None:
        if database == HOME:
            self._forget_at_home()
        else:
            self._forget_in_other()

    def lose_next_answer(self, statement: Lossy, *, acted: bool) -> None:
        losses = {
            Lossy.COMMIT: self.home.answers_to_lose,
            Lossy.PREPARE: self.other.prepares_to_lose,
            Lossy.COMMIT_PREPARED: self.other.finishes_to_lose,
        }[statement]
        losses.append(LostAnswer.ACTED if acted else LostAnswer.DROPPED)

    def await_loss(self) -> None:
        """The fake acts at once."""

    def _forget_at_home(self) -> None:
        state = self.home.state
        *ledger, newest = state.ledger
        (covered,) = newest.ranges
        position = StoredPosition(
            topic_id=state.positions[EVENTS].topic_id, next_offset=covered.from_offset
        )
        kept = tuple(g for g in state.decided if g.sequence < newest.sequence)
        rows = tuple(p for p in state.tables[RESULTS] if p[1] < covered.from_offset)
        self.home.state = replace(
            state,
            ledger=tuple(ledger),
            positions={EVENTS: position},
            decided=kept,
            tables={RESULTS: rows},
        )

    def _forget_in_other(self) -> None:
        state = self.other.state
        newest = max(gid.sequence for gid in state.markers.values())
        (covered,) = self.home.state.ledger[newest - 1].ranges
        self.other.state = replace(
            state,
            markers={k: g for k, g in state.markers.items() if g.sequence < newest},
            rows=tuple(p for p in state.rows if p[1] < covered.from_offset),
        )
