"""Wait while a pipeline is held, by a pause or by a batch run until it is published."""

from __future__ import annotations

import threading

import structlog

from tallyweir.sinks.postgres.publish.home import PostgresHome

_LOOK_S = 1.0


def await_nobody_holds(
    home: PostgresHome,
    stop: threading.Event,
    log: structlog.typing.FilteringBoundLogger,
) -> None:
    """Return once a pipeline is neither paused nor held by a run, or ``stop`` is set.

    Call this before a claim: a claim would fence the run, and does not end a pause. It
    does not wait for a run whose process has ended.

    Raises:
        RetryableError: The home database is unreachable.
    """
    told = None
    while (hold := home.read_hold()) is not None:
        if hold != told:
            log.info("waiting", hold=hold)
            told = hold
        if stop.wait(_LOOK_S):
            return
