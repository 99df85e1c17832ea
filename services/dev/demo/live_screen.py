"""The demo at a terminal: lines of text, and below them counts that update."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tallyweir.services.dev.demo.drill import DemoProgress

_REFRESHES_PER_S = 5


class LiveScreen:
    """Shows lines as they come, and the counts under them.

    Args:
        messages: Rough number of messages to send, for the bars.
    """

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._progress = DemoProgress()
        self._started = time.monotonic()
        self._console = Console(file=sys.stderr)
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=_REFRESHES_PER_S,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, text: str) -> None:
        """Print a line above the counts, with the seconds since the start."""
        line = Text(f"{self._elapsed_s:6.1f} s  ", style="dim")
        self._console.print(line.append(text, style="not dim"))

    def show(self, progress: DemoProgress) -> None:
        """Let the next refresh draw these counts."""
        self._progress = progress

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def _draw(self) -> Table:
        now = self._progress
        total = max(self._messages, now.sent)
        grid = Table.grid(padding=(0, 2))
        for name, count in (("sent", now.sent), ("read", now.read)):
            grid.add_row(
                name,
                f"{count:>9,}",
                ProgressBar(total=total, completed=count, width=30),
            )
        grid.add_row("committed", f"{now.committed:>9,}", f"batch {now.batch}")
        grid.add_row("duplicates", f"{now.duplicates:>9,}", f"kills {now.kills}")
        grid.add_row("dead", f"{now.dead:>9,}", f"{self._elapsed_s:.0f} s")
        return grid
