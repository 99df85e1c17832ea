"""The fate of one copy of an event."""

from __future__ import annotations

from enum import Enum


class Fate(Enum):
    """The fate of one copy of an event."""

    COMMITTED = "committed"
    DUPLICATE = "duplicate"
    DEAD = "dead"
    LATE = "late"
    EXPIRED = "expired"
    FILTERED = "filtered"
    REPLACED = "replaced"
