"""What the monitor may show of a pipeline's events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """What may be shown beside counts and times.

    Attributes:
        show_keys: Hot keys as they are; hashes of them otherwise, because a key may be
            somebody's name.
    """

    show_keys: bool = False
