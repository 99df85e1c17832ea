"""The result of a batch run."""

from __future__ import annotations

from dataclasses import dataclass

from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.sinks.protocol.votes import EventCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of a run.

    Attributes:
        counts: Counts of its input by outcome, now or when it was done.
        was_done: The run was published before, and this call did nothing.
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
