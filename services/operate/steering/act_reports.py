"""Reports forks, switches, discards and drains in lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from tallyweir.sinks.postgres.audit import Waiting
from tallyweir.sinks.postgres.steering import Discarded, Fork, Switch


def fork_told(made: Fork) -> tuple[str, ...]:
    """Report where a fork goes on, and in which tables."""
    return (
        f"{made.pipeline} goes on after batch {made.last_sequence} of {made.of}.",
        *(
            f"  {front} -> {shadow}: "
            + (
                "begins empty"
                if (rows := made.rows.get(shadow)) is None
                else f"{rows} rows copied"
            )
            for front, shadow in made.shadows.items()
        ),
    )


def switch_told(done: Switch, front: str, shadowing: str) -> tuple[str, ...]:
    """Report whose rows readers find now.

    Args:
        done: The switch.
        front: The pipeline that was in front.
        shadowing: The pipeline that is in front now.
    """
    lines = []
    for table in done.tables:
        kept = done.former.get(table)
        where = f"; those of {front} are in {kept}" if kept else ""
        lines.append(f"{table} has the rows of {shadowing}{where}")
    if done.left:
        left = ", ".join(done.left)
        lines.append(f"{front} goes on with {left}, which {shadowing} does not have.")
    return tuple(lines)


def discard_told(done: Discarded) -> tuple[str, ...]:
    """Report what goes with a discarded pipeline, and what stays."""
    front = f" in the shadow of {done.front}" if done.front else ""
    had = f"{done.batches} batches of {done.committed} committed events"
    lines = [
        f"{done.pipeline} worked{front}, with {had}. The discard deletes:",
        *(f"  {rows} rows of {table}" for table, rows in done.rows.items()),
        f"  {done.bytes:,} bytes of tables, windows, seen IDs, snapshots and staging",
    ]
    if done.unrelayed:
        lines.append(
            f"{done.unrelayed} of its dead letters and messages were never relayed."
        )
    if done.left:
        lines.append(
            f"{', '.join(done.left)} stay, because the pipeline wrote them under the "
            "names that readers use: let another pipeline write them, or drop them."
        )
    return tuple(lines)


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
