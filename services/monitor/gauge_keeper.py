"""Gauges all pipelines every half minute, and keeps the gauges for charts.

A gauge costs more than a look: it asks when Kafka got the oldest unread record, how
large state is, and what is prepared. So it runs less often, and no request waits for
it. The page shows gauges even if they cannot be stored, as on a standby.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from functools import partial

import structlog

from tallyweir.services.kafka.retention import NOTHING_UNREAD, KafkaRetention, Unread
from tallyweir.services.kafka.source_lag import lags_of, positions_of
from tallyweir.services.monitor.home_reader import HomeReader
from tallyweir.services.monitor.watcher import Broker
from tallyweir.services.operate.pipeline_json import Gauged
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.audit import (
    PipelineSummary,
    read_overview,
    read_recent_figures,
)
from tallyweir.sinks.postgres.records.pipeline_gauges import (
    EVERY_S,
    Gauges,
    keep_gauges,
    read_home_figures,
)
from tallyweir.sinks.protocol.errors import TallyweirError


class GaugeKeeper:
    """Gauges one pipeline after another, in a thread of its own.

    Args:
        home: The home database.
        bootstrap: Address of the broker.
        every_s: Seconds from the start of one round to the start of the next.
    """

    def __init__(
        self, home: HomeReader, bootstrap: str, *, every_s: float = EVERY_S
    ) -> None:
        self._home = home
        self._bootstrap = bootstrap
        self._every_s = every_s
        self._retention = KafkaRetention(bootstrap)
        self._troubles: dict[str, str] = {}
        self._log = structlog.get_logger()
        #: Gauges of the last round by pipeline; replaced, never changed in place.
        self.found: Mapping[str, Gauged] = {}

    async def run(self, end: asyncio.Event) -> None:
        """Read gauges until told to end."""
        # Measure from start to start; otherwise a long round skips an interval.
        due = time.monotonic()
        while not end.is_set():
            await asyncio.to_thread(self.gauge_all, end)
            due = max(due + self._every_s, time.monotonic())
            try:
                await asyncio.wait_for(end.wait(), due - time.monotonic())
            except TimeoutError:
                continue

    def gauge_all(self, end: asyncio.Event) -> None:
        """Read the gauges of each pipeline once, and log new troubles."""
        troubles: dict[str, str] = {}
        found: dict[str, Gauged] = {}
        try:
            summaries = self._home.read(read_overview)
        except TallyweirError as error:
            # Do not show old gauges as if they were current.
            self.found = {}
            self._note({error.code: error.saw})
            return
        topics = {topic for one in summaries for topic in one.topics}
        broker, silent = KafkaAdmin(self._bootstrap, *topics).read_there()
        troubles.update((error.code, error.saw) for error in silent)
        for one in summaries:
            if end.is_set():
                return
            positions = positions_of(one.topics, broker)
            try:
                gauged = self._gauge(one, positions, troubles)
                found[one.pipeline] = gauged
                self._home.read(
                    partial(keep_gauges, pipeline=one.pipeline, gauges=gauged.gauges)
                )
            except TallyweirError as error:
                troubles[error.code] = error.saw
        self.found = found
        self._note(troubles)

    def _gauge(
        self, one: PipelineSummary, positions: Broker, troubles: dict[str, str]
    ) -> Gauged:
        lags = lags_of(one.next_offsets, positions)
        lag = None if lags is None else sum(lags.values())
        unread = self._read_unread(one, positions, troubles)
        return Gauged(
            gauges=Gauges(
                freshness_s=one.freshness_s,
                lag=lag,
                catch_up_s=one.catch_up_s(lag),
                unread_s=None
                if unread.oldest_at is None
                else max(0.0, (one.observed_at - unread.oldest_at).total_seconds()),
                headroom_s=None if math.isinf(unread.headroom_s) else unread.headroom_s,
                home=self._home.read(partial(read_home_figures, pipeline=one.pipeline)),
            ),
            committed=self._home.read(
                partial(read_recent_figures, pipeline=one.pipeline)
            ),
        )

    def _read_unread(
        self, one: PipelineSummary, positions: Broker, troubles: dict[str, str]
    ) -> Unread:
        # Do not wait for a silent broker again with each pipeline.
        if positions is None or "KAFKA_UNREACHABLE" in troubles:
            return NOTHING_UNREAD
        try:
            return self._retention.read_unread(
                one.next_offsets, positions, one.observed_at
            )
        except TallyweirError as error:
            troubles[error.code] = error.saw
            return NOTHING_UNREAD

    def _note(self, troubles: dict[str, str]) -> None:
        for code in troubles.keys() - self._troubles.keys():
            self._log.warning("gauges not read", code=code, saw=troubles[code])
        self._troubles = troubles
