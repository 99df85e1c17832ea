"""Carry out a requested drain, under a claim that reads nothing."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tallyweir.sinks.faultpoints import DrainPoint, making
from tallyweir.sinks.postgres.audit import read_waiting
from tallyweir.sinks.postgres.ledger.epoch_claims import Drain, read_drain
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.instants import to_microseconds
from tallyweir.sinks.postgres.steering import end_drain
from tallyweir.spark_jobs.batches.bridge import Bridge
from tallyweir.spark_jobs.batches.prepared_pipeline import BridgeParts
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings

_NAME = "tallyweir drain"


class PipelineDrain:
    """Drains one pipeline, if a drain is requested.

    Args:
        settings: The driver's settings.
        pipeline: The pipeline's name.
        log: The driver's log.
    """

    def __init__(
        self,
        settings: DriverSettings,
        pipeline: str,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._log = log

    def find(self) -> Drain | None:
        """Return the requested drain, or None.

        Call this under a claim: a drain that is requested later fences the claim.

        Raises:
            RetryableError: The server is unreachable.
        """
        with connect(self._settings.home_dsn, application_name=_NAME) as home:
            return read_drain(home, self._pipeline)

    def end(
        self,
        asked: Drain,
        parts: BridgeParts,
        bridge: Bridge,
        is_told_to_stop: Callable[[], bool],
    ) -> bool:
        """Close windows if the drain asks for it, and pause the pipeline.

        By then branches in doubt are finished, because the claim's databases are open.

        Args:
            asked: The requested drain.
            parts: The parts that the bridge works with.
            bridge: The claim's bridge; it runs no query.
            is_told_to_stop: Called before each tick.

        Returns:
            Whether the pipeline is drained. False if the driver was told to stop
            before; the next driver then carries out the drain.

        Raises:
            FencedError: A newer epoch is claimed.
            TallyweirError: As a batch does.

        Crash:
            Each tick is a batch, and the pause is one transaction. The next driver
            finds the drain, and the work that is left.
        """
        self._log.info("draining", told=asked.told())
        if asked.closes_windows:
            with making(DrainPoint.WINDOWS_CLOSED):
                is_closed = self._close(bridge, is_told_to_stop)
            if not is_closed:
                self._log.info("stopped before all was closed")
                return False
        with (
            making(DrainPoint.DRAINED),
            connect(self._settings.home_dsn, application_name=_NAME) as home,
        ):
            paused = end_drain(home, self._pipeline, asked, epoch=parts.epoch)
        self._log.info(
            "drained",
            after_sequence=paused.last_sequence,
            fix=f"Nothing to do. tallyweir resume {self._pipeline} makes the pipeline "
            "go on.",
        )
        return True

    def _close(self, bridge: Bridge, is_told_to_stop: Callable[[], bool]) -> bool:
        with connect(self._settings.home_dsn, application_name=_NAME) as home:
            waiting = read_waiting(home, self._pipeline, self._settings.databases)
        through_us = to_microseconds(waiting.closing_watermark)
        return through_us is None or bridge.close(through_us, is_told_to_stop)
