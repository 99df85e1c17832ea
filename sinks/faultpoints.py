"""Named moments of the batch protocol at which tests make a driver fail.

Inert in production: reaching a point is one dictionary look-up in an empty
dictionary. The names are used verbatim in code, documents and tests.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class FaultPoint(Enum):
    """Facts that are just true when the point is reached."""

    PLANNED = "planned"
    ROWS_STAGED = "rows_staged"
    VOTED = "voted"
    DECISION_COMMITTED = "decision_committed"
    SEALED = "sealed"


_armed: dict[FaultPoint, Callable[[], None]] = {}


def arm(point: FaultPoint, action: Callable[[], None]) -> None:
    """Run ``action`` whenever ``point`` is reached in this process."""
    _armed[point] = action


def disarm_all() -> None:
    """Make every point inert again."""
    _armed.clear()


def reach(point: FaultPoint) -> None:
    """Do nothing, unless a test has armed the point."""
    action = _armed.get(point)
    if action is not None:
        action()
