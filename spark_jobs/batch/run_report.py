"""How a batch run ended."""

from __future__ import annotations

from dataclasses import dataclass

from sinks.protocol.batch_run import BatchRun
from sinks.protocol.votes import EventCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """How a run ended; ``counts`` is None when it was done before."""

    run: BatchRun
    counts: EventCounts | None

    def __str__(self) -> str:
        counts = self.counts
        if counts is None:
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
