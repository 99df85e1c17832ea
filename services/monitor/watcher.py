"""Looks at all pipelines every few seconds, once for all watchers.

The numbers of a pipeline have the names of ``status --json`` (docs/status.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import structlog

from tallyweir.services.kafka.source_lag import lags_of, positions_of
from tallyweir.services.monitor.home_reader import HomeReader
from tallyweir.services.operate.pipeline_json import Gauged, gauges_json
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.audit import PipelineSummary, read_overview
from tallyweir.sinks.postgres.records.alert_book import FiringAlert, read_firing
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

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
        self._broker, troubles = KafkaAdmin(self._bootstrap, *wanted).read_there()
        self._broker_troubles = [trouble_json(error) for error in troubles]


def trouble_json(error: TallyweirError) -> dict[str, str]:
    """Return an error as the page shows it."""
    return {"code": error.code, "saw": error.saw, "why": error.why, "fix": error.fix}


Broker = Mapping[TopicPartition, BrokerPosition] | None


def summary_json(
    found: PipelineSummary,
    broker: Broker,
    firing: Sequence[FiringAlert] = (),
    gauged: Gauged | None = None,
) -> dict[str, object]:
    """Return what the overview shows of a pipeline; unknown values are null.

    Args:
        found: Summary from the home database.
        broker: Positions of its topics in Kafka; None if Kafka does not answer.
        firing: The firing alerts of all pipelines.
        gauged: Its last gauges; None before the first round.
    """
    lags = lags_of(found.next_offsets, broker)
    lag = None if lags is None else sum(lags.values())
    held_back = (
        None if broker is None else sum(one.held_back for one in broker.values())
    )
    return {
        "pipeline": found.pipeline,
        "guarantee": found.guarantee.value,
        "topics": list(found.topics),
        "state": found.state(lag).value,
        "cause": found.cause(lag) or _held_told(held_back),
        "lag": lag,
        "held_back": held_back,
        "catch_up_s": found.catch_up_s(lag),
        "freshness_s": found.freshness_s,
        "since_commit_s": found.since_commit_s,
        "events_per_second_minute": found.recent.per_second,
        "watermark": found.watermark,
        "last_sequence": found.last_sequence,
        "in_doubt": found.in_doubt,
        "minute": asdict(found.recent),
        "receipt": found.receipt
        and {**asdict(found.receipt), "age_s": found.since_receipt_s},
        "driver": found.driver and asdict(found.driver),
        "gauges": gauged and gauges_json(gauged.gauges),
        "committed": gauged and asdict(gauged.committed),
        "alerts": [asdict(one) for one in firing if one.pipeline == found.pipeline],
    }


def _held_told(held_back: int | None) -> str | None:
    if not held_back:
        return None
    return (
        f"{held_back:,} offsets wait in Kafka behind an open transaction; tallyweir "
        "status shows whose."
    )
