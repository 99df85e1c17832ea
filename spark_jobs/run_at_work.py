"""Waiting for a batch run, which holds the newest claim until it is published."""

from __future__ import annotations

import threading

import structlog

from sinks.postgres.home import PostgresHome

_LOOK_S = 1.0


def await_run_at_work(
    home: PostgresHome,
    stop: threading.Event,
    log: structlog.typing.FilteringBoundLogger,
) -> None:
    """Return once no batch run is at work on the pipeline, or ``stop`` is set.

    To be called before a claim, which would fence the run. A run whose process has
    ended is not waited for.

    Raises:
        RetryableError: The home database is unreachable.
    """
    told = None
    while (run := home.read_run_at_work()) is not None:
        if run != told:
            log.info("waiting for a batch run", run=run)
            told = run
        if stop.wait(_LOOK_S):
            return
