"""Limits how far sending may run ahead of the faults.

A fault must hit a driver at work, so there must be records to read when it comes, and
the stream must last until the last fault. So the senders wait at a mark, which the
nemesis moves forward.
"""

from __future__ import annotations

import threading


class Gate:
    """A mark in the stream of committed records; it only moves forward."""

    def __init__(self) -> None:
        self._open_until = 0
        self._is_closed = False
        self._moved = threading.Condition()

    @property
    def open_until(self) -> int:
        """The mark."""
        return self._open_until

    def open_to(self, records: int) -> None:
        """Move the mark forward, unless it is already further on."""
        with self._moved:
            self._open_until = max(self._open_until, records)
            self._moved.notify_all()

    def close(self) -> None:
        """Release all senders, and let them send nothing more."""
        with self._moved:
            self._is_closed = True
            self._moved.notify_all()

    def await_turn(self, before: int) -> bool:
        """Wait until the mark allows to send what follows so many records.

        Returns:
            False if nothing more is to be sent.
        """
        with self._moved:
            self._moved.wait_for(lambda: self._is_closed or before < self._open_until)
            return not self._is_closed
