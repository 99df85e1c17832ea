"""What was forked, and what has changed places, in lines for people."""

from __future__ import annotations

from sinks.postgres.steering import Fork, Switch


def fork_told(made: Fork) -> tuple[str, ...]:
    """Say from where a fork goes on, and in which tables."""
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
    """Say whose rows readers find now.

    Args:
        done: What has changed places.
        front: The pipeline that was in front.
        shadowing: The one that is now.
    """
    lines = []
    for table in done.tables:
        kept = done.former.get(table)
        where = f"; those of {front} are in {kept}" if kept else ""
        lines.append(f"{table} has the rows of {shadowing}{where}")
    if done.left:
        left = ", ".join(done.left)
        lines.append(f"{front} goes on with {left}, which {shadowing} has not.")
    return tuple(lines)
