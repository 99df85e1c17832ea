"""The fake home keeps every promise of the ``Home`` port."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.testing.conformance import CASES
from tallyweir.sinks.testing.home_harness import (
    IDLE_TIMEOUT_US,
    WATERMARK_DELAY_US,
    HomeHarness,
    LedgerLine,
)
from tallyweir.sinks.testing.memory_home import MemoryDatabase, MemoryHome
from tallyweir.sinks.testing.memory_server import LostAnswer
from tallyweir.sinks.testing.planned_batches import (
    EVENT_TIME_START_US,
    RESULTS,
    Position,
)


class _MemoryHarness:
    """Binds the suite to ``MemoryHome``."""

    def __init__(self) -> None:
        self._database = MemoryDatabase(
            watermark_delay_us=WATERMARK_DELAY_US, idle_timeout_us=IDLE_TIMEOUT_US
        )

    def new_driver(self) -> MemoryHome:
        return self._database.new_driver()

    def stage(
        self, plan: BatchPlan, attempt: Attempt, rows: Iterable[Position]
    ) -> None:
        self._database.staging.stage(plan.key.epoch, attempt, rows, RESULTS)

    def published(self) -> list[Position]:
        return sorted(self._database.state.tables.get(RESULTS, ()))

    def ledger(self) -> list[LedgerLine]:
        return [
            LedgerLine(
                sequence=entry.sequence,
                epoch=entry.key.epoch,
                committed=entry.counts.committed,
                checksum=entry.checksum,
            )
            for entry in self._database.state.ledger
        ]

    def refuse(self, rows: Iterable[Position]) -> None:
        self._database.refused.update(rows)

    def crash_server(self) -> None:
        self._database.crash()

    def make_idle(self, topic_partition: TopicPartition) -> None:
        clocks = dict(self._database.state.clocks)
        idle_since_us = EVENT_TIME_START_US - IDLE_TIMEOUT_US - 1
        clocks[topic_partition] = replace(
            clocks[topic_partition], active_at_us=idle_since_us
        )
        self._database.state = replace(self._database.state, clocks=clocks)

    def undo_newest_claim(self) -> None:
        claims = dict(self._database.state.claims)
        del claims[self._database.state.newest_epoch]
        self._database.state = replace(self._database.state, claims=claims)

    def lose_next_answer(self, *, committed: bool) -> None:
        self._database.answers_to_lose.append(
            LostAnswer.ACTED if committed else LostAnswer.DROPPED
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_memory_home_conforms(case: Callable[[HomeHarness], None]) -> None:
    """Each case of the suite holds on the fake."""
    case(_MemoryHarness())
