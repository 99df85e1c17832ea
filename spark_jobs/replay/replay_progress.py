"""Reports the progress of a replay."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds between two lines.
_EVERY_S = 5.0
_MINUTE_S = 60


class ReplayProgress:
    """Counts batches and records, and reports every few seconds the time left.

    Args:
        batches: Number of batches to compute.
        records: Number of records that they have read.
        tell: Called with each line.
    """

    def __init__(self, batches: int, records: int, tell: Callable[[str], None]) -> None:
        self._batches = batches
        self._records = records
        self._tell = tell
        self._began = time.monotonic()
        self._told = self._began
        #: Batches and records computed so far.
        self.batches = 0
        self.records = 0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def note(self, records: int) -> None:
        """Count a batch, with the records that it has read."""
        self.batches += 1
        self.records += records
        now = time.monotonic()
        if self.batches == self._batches or now - self._told >= _EVERY_S:
            self._told = now
            self._tell(self._line())

    def _line(self) -> str:
        rate = self.records / max(self.seconds, 0.001)
        left = self._records - self.records
        said = (
            f"replayed {self.batches:,} of {self._batches:,} batches, {rate:,.0f} "
            "records/s"
        )
        if self.batches == self._batches or not rate:
            return said
        seconds = left / rate
        if seconds < _MINUTE_S:
            return f"{said}, {seconds:.0f} s left"
        return f"{said}, {seconds / _MINUTE_S:.0f} min left"
