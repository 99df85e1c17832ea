"""Runs histories; one that fails tells how to run it again."""

from __future__ import annotations

from sinks.testing.simulation.faults import Coverage
from sinks.testing.simulation.history import History


class HistoryFailedError(AssertionError):
    """A history broke a promise; the message has its trace and its seed."""


def run_history(seed: int) -> History:
    """Run one history.

    Raises:
        HistoryFailedError: It broke a promise.
    """
    history = History(seed)
    try:
        history.run()
    except Exception as error:
        trace = "\n".join(history.trace)
        raise HistoryFailedError(
            f"{trace}\n{type(error).__name__}: {error}\n"
            f"again: .venv/bin/python -m sinks.testing.simulation {seed}"
        ) from error
    return history


def run_histories(first: int, count: int) -> Coverage:
    """Run the histories of some seeds in a row; return what went wrong in them.

    Raises:
        HistoryFailedError: One of them broke a promise.
    """
    coverage = Coverage()
    for seed in range(first, first + count):
        coverage.add(run_history(seed).coverage)
    return coverage
