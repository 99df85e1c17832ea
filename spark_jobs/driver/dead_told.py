"""Report dead letters prominently after a call, which may end before anyone looks."""

from __future__ import annotations

from tallyweir.sinks.protocol.votes import EventCounts

#: The exit code of a call in which all records became dead letters.
ALL_DIED = 1


def dead_told(pipeline: str, counts: EventCounts) -> str | None:
    """Say how many records are dead letters and which command shows why, or None."""
    if not counts.dead:
        return None
    shows = f"tallyweir dead-letters list {pipeline} shows why."
    if counts.is_all_dead:
        return f"NO RESULTS: all of {counts.read:,} records are dead letters; {shows}"
    return f"{counts.dead:,} of {counts.read:,} records are dead letters; {shows}"
