"""Waiting for who holds a pipeline: a pause, or a batch run until it is published."""

from __future__ import annotations

import threading

import structlog

from sinks.postgres.publish.home import PostgresHome

_LOOK_S = 1.0


def await_nobody_holds(
    home: PostgresHome,
    stop: threading.Event,
    log: structlog.typing.FilteringBoundLogger,
) -> None:
    """Return once a pipeline is neither paused nor held by a run, or ``stop`` is set.

    To be called before a claim, which would fence the run or end nobody's pause. A run
    whose process has ended is not waited for.

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
