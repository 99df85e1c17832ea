"""Yield records at a given rate, until there are enough or the caller stops them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator

from tallyweir.schemas.codec import EventRecord


class PacedRecords:
    """Yields records no faster than a rate; can be read once.

    It catches up after the reader was busy, so the mean rate holds.

    Args:
        records: The records, possibly without end.
        rate: Records per second; None for as fast as they are read.
        events: Stop after this many records; None for all.
        seconds: Stop after this many seconds; None for no limit.
    """

    def __init__(
        self,
        records: Iterable[EventRecord],
        *,
        rate: float | None,
        events: int | None,
        seconds: float | None,
    ) -> None:
        self._records = records
        self._rate = rate
        self._events = events
        self._seconds = seconds
        self._stopped = threading.Event()

    @property
    def line_number(self) -> int | None:
        """The line in its file of the record yielded last, if it comes from a file."""
        return getattr(self._records, "line_number", None)

    def stop(self) -> None:
        """Stop yielding records; safe in a signal handler."""
        self._stopped.set()

    def __iter__(self) -> Iterator[EventRecord]:
        """Yield the records."""
        began = time.monotonic()
        for number, record in enumerate(self._records):
            if number == self._events:
                return
            due_s = 0.0 if self._rate is None else number / self._rate
            wait_s = began + due_s - time.monotonic()
            if self._seconds is not None and (
                due_s >= self._seconds or time.monotonic() - began >= self._seconds
            ):
                return
            if self._stopped.wait(wait_s) if wait_s > 0 else self._stopped.is_set():
                return
            yield record
