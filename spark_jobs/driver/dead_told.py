"""Says loudly what died of what a call has read: it is over before anybody looks."""

from __future__ import annotations

from sinks.protocol.votes import EventCounts

#: The exit code of a call all of whose records died: it has brought nothing.
ALL_DIED = 1


def dead_told(pipeline: str, counts: EventCounts) -> str | None:
    """Say how many of the records died, and which command shows why; None if none."""
    if not counts.dead:
        return None
    shows = f"tallyweir dead-letters list {pipeline} shows why."
    if counts.is_all_dead:
        return f"NO RESULTS: all of {counts.read:,} records are dead letters; {shows}"
    return f"{counts.dead:,} of {counts.read:,} records are dead letters; {shows}"
