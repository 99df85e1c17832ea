"""How a batch run ended."""

from __future__ import annotations

from dataclasses import dataclass

from sinks.protocol.batch_run import BatchRun
from sinks.protocol.votes import EventCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """How a run ended.

    Attributes:
        counts: What became of its input, now or when it was done.
        was_done: It was published before, and nothing was done now.
    """

    run: BatchRun
    counts: EventCounts
    was_done: bool

    def __str__(self) -> str:
        counts = self.counts
        if self.was_done:
            return f"Run {self.run.name} was published before; nothing was changed."
        parts = {
            "committed": counts.committed,
            "duplicate": counts.duplicate,
            "dead": counts.dead,
            "late": counts.late,
            "expired": counts.expired,
            "filtered": counts.filtered,
        }
        told = ", ".join(f"{count:,} {name}" for name, count in parts.items())
        return f"Run {self.run.name} is published: {counts.read:,} read: {told}."
