"""Looks at all pipelines every few seconds, once for all watchers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from tallyweir.services.kafka.topic_positions import positions_of, read_positions
from tallyweir.services.monitor.home_reader import HomeReader
from tallyweir.services.monitor.shown_pipeline import Broker, summary_json
from tallyweir.services.operate.gauged import Gauged
from tallyweir.sinks.postgres.alerting.firing import FiringAlert, read_firing
from tallyweir.sinks.postgres.audit import PipelineSummary, read_overview
from tallyweir.sinks.protocol.errors import TallyweirError

EVERY_S = 2.0
#: The watcher asks Kafka less often than the home database.
KAFKA_EVERY_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The result of one look.

    Attributes:
        number: Number of the look, from 1.
        pipelines: Each pipeline as ``summary_json`` describes it.
        troubles: Failed reads: code, what was seen, why it matters, and the fix.
    """

    number: int
    pipelines: tuple[dict[str, object], ...]
    troubles: tuple[dict[str, str], ...]


class Watcher:
    """Keeps the newest look, and hands each new one to all watchers.

    Args:
        home: The home database.
        bootstrap: Address of the broker.
        note: Called with each look.
        gauged: Returns the last gauges by pipeline.
        every_s: Seconds from the end of one look to the start of the next.
    """

    def __init__(
        self,
        home: HomeReader,
        bootstrap: str,
        note: Callable[[Look], None],
        gauged: Callable[[], Mapping[str, Gauged]],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._note = note
        self._gauged = gauged
        self._home = home
        self._bootstrap = bootstrap
        self._every_s = every_s
        self._changed = asyncio.Condition()
        self._look = Look(number=0, pipelines=(), troubles=())
        self._broker: Broker = None
        self._broker_troubles: list[dict[str, str]] = []
        self._broker_asked_at = -KAFKA_EVERY_S
        self._log = structlog.get_logger()

    async def run(self, end: asyncio.Event) -> None:
        """Look until told to end."""
        while not end.is_set():
            look = await asyncio.to_thread(self._find)
            self._note(look)
            async with self._changed:
                self._look = look
                self._changed.notify_all()
            try:
                await asyncio.wait_for(end.wait(), self._every_s)
            except TimeoutError:
                continue
        async with self._changed:
            self._changed.notify_all()

    async def looks(self, end: asyncio.Event) -> AsyncIterator[Look]:
        """Yield the newest look, and then new ones; a slow caller may miss some."""
        shown = 0
        while not end.is_set():
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self._look.number > shown or end.is_set()  # noqa: B023
                )
                look = self._look
            if look.number > shown:
                shown = look.number
                yield look

    def _find(self) -> Look:
        troubles: list[dict[str, str]] = []
        found: tuple[PipelineSummary, ...] = ()
        firing: tuple[FiringAlert, ...] = ()
        try:
            found = self._home.read(read_overview)
            firing = self._home.read(read_firing)
        except TallyweirError as error:
            troubles.append(trouble_json(error))
        self._ask_kafka({topic for one in found for topic in one.topics})
        troubles += self._broker_troubles
        if troubles != list(self._look.troubles):
            self._log.warning("trouble", troubles=troubles)
        gauged = self._gauged()
        return Look(
            number=self._look.number + 1,
            pipelines=tuple(
                summary_json(
                    one,
                    positions_of(one.topics, self._broker),
                    firing,
                    gauged.get(one.pipeline),
                )
                for one in found
            ),
            troubles=tuple(troubles),
        )

    def _ask_kafka(self, topics: Iterable[str]) -> None:
        wanted = sorted(topics)
        now = time.monotonic()
        if not wanted or now - self._broker_asked_at < KAFKA_EVERY_S:
            return
        self._broker_asked_at = now
        self._broker, troubles = read_positions(self._bootstrap, wanted)
        self._broker_troubles = [trouble_json(error) for error in troubles]


def trouble_json(error: TallyweirError) -> dict[str, str]:
    """Return an error as the page shows it."""
    return {"code": error.code, "saw": error.saw, "why": error.why, "fix": error.fix}
