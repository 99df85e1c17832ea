"""Runs histories; a failure says how to run its history again."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from tallyweir.sinks.testing.simulation.faults import Coverage
from tallyweir.sinks.testing.simulation.history import History

#: Histories that a process runs in a row; its start takes as long as a hundred.
_IN_A_ROW = 1_000


class HistoryFailedError(AssertionError):
    """A history broke a promise; the message has its trace and its seed."""


def run_history(seed: int) -> History:
    """Run one history.

    Raises:
        HistoryFailedError: The history broke a promise.
    """
    history = History(seed)
    try:
        history.run()
    except Exception as error:
        trace = "\n".join(history.trace)
        raise HistoryFailedError(
            f"{trace}\n{type(error).__name__}: {error}\n"
            f"again: .venv/bin/python -m tallyweir.sinks.testing.simulation {seed}"
        ) from error
    return history


def run_histories(first: int, count: int) -> Coverage:
    """Run the histories of some seeds; return what went wrong in them.

    Many histories are spread over the machine's cores: each has its own world.

    Raises:
        HistoryFailedError: A history broke a promise.
    """
    if count <= _IN_A_ROW:
        return _run_in_a_row(first, count)
    firsts = range(first, first + count, _IN_A_ROW)
    counts = [min(_IN_A_ROW, first + count - start) for start in firsts]
    coverage = Coverage()
    # A process with threads must not be forked, and a test runner may have threads.
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=spawned) as processes:
        for found in processes.map(_run_in_a_row, firsts, counts):
            coverage.add(found)
    return coverage


def _run_in_a_row(first: int, count: int) -> Coverage:
    coverage = Coverage()
    for seed in range(first, first + count):
        coverage.add(run_history(seed).coverage)
    return coverage
