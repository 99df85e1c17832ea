"""Reports what waits for event time in a pipeline, and what a drain does with it."""

from __future__ import annotations

from collections.abc import Iterator

from tallyweir.sinks.postgres.audit import Waiting


def waiting_told(waiting: Waiting, *, closes_windows: bool) -> Iterator[str]:
    """Yield a line for each thing that waits, and a line about the watermark."""
    for window in waiting.windows:
        if window.groups:
            yield (
                f"{window.table} in {window.database}: {window.groups:,} open groups "
                f"of {window.events:,} events, until the watermark is at "
                f"{window.closes_at}."
            )
    if waiting.timers:
        yield f"{waiting.timers:,} timers in event time, until {waiting.last_timer}."
    if waiting.clock_timers:
        yield f"{waiting.clock_timers:,} timers by the clock, which stay."
    closing = waiting.closing_watermark
    if closing is None:
        yield "Nothing waits for event time."
    elif closes_windows:
        yield (
            f"The watermark moves from {waiting.watermark or 'unknown'} to {closing}: "
            "if the pipeline goes on, an event of a window that ends by then is late."
        )
    else:
        yield "All of this keeps waiting."
