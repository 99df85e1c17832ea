"""Measures the parts of a publish transaction, and the COMMIT before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tallyweir.sinks.protocol.measures import Measures
from tallyweir.sinks.step_clock import Spent, StepClock

#: Batches of a pipeline whose measures are kept: an hour at 27 batches a second.
MEASURES_KEPT = 100_000


class PublishClock:
    """Measures one publish transaction after the other, each on one thread.

    The duration of a COMMIT is known only when nothing more can be written with it, so
    the next batch records it.
    """

    def __init__(self) -> None:
        self._commit_s: float | None = None
        self.begin()

    def begin(self) -> None:
        """Begin to measure a transaction."""
        self._parts = StepClock()
        self._began = time.perf_counter()

    def spent_on(self, part: str) -> Spent:
        """Return a context that adds the time of its block to a part."""
        return self._parts.spent_on(part)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the transaction began."""
        return time.perf_counter() - self._began

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Time the block, which is the COMMIT."""
        self._commit_s, began = None, time.perf_counter()
        yield
        self._commit_s = time.perf_counter() - began

    def measures(self) -> Measures:
        """Return the seconds of the transaction so far, and of the COMMIT before it."""
        seconds = {f"publish_{n}": s for n, s in self._parts.seconds().items()}
        seconds["publish"] = self.elapsed_s
        if self._commit_s is not None:
            seconds["commit_before"] = self._commit_s
        return Measures(seconds=seconds)
