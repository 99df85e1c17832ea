"""The plan of a replayed batch, as the ledger has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tallyweir.sinks.postgres.audit.replay.replay_ledger import RecordedBatch
from tallyweir.sinks.protocol.identity import BatchKey
from tallyweir.sinks.protocol.ports import BatchPlan, Progress
from tallyweir.sinks.protocol.votes import NOTHING_STAGED, BatchTally
from tallyweir.sinks.protocol.watermark import ClockRule


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPlan(BatchPlan):
    """A plan after which the watermark is that of the ledger.

    So lateness and timers are decided as before, even if the clocks of the partitions
    are unknown because batches that are not replayed have moved them.
    """

    recorded_us: int | None

    def watermark_after(self, rule: ClockRule, tally: BatchTally) -> int | None:
        """Return the watermark of the ledger."""
        del rule, tally
        return self.recorded_us

    def derived_after(self, rule: ClockRule, tally: BatchTally) -> int | None:
        """Return the watermark after the batch by the rule."""
        return BatchPlan.watermark_after(self, rule, tally)


def recorded_plan(
    batch: RecordedBatch,
    key: BatchKey,
    progress: Progress,
    *,
    topic_ids: Mapping[str, str],
    lookups: Mapping[str, str],
) -> RecordedPlan:
    """Plan a batch as the driver did; the scratch home stands right before it."""
    return RecordedPlan(
        key=key,
        ranges=batch.ranges,
        watermark_us=batch.watermark_before_us,
        after_sequence=progress.last_sequence,
        clocks=progress.clocks,
        planned_at_us=batch.planned_at_us,
        topic_ids=topic_ids,
        lookups=lookups,
        run=batch.run,
        recorded_us=batch.watermark_after_us,
    )


def closes(plan: RecordedPlan, rule: ClockRule) -> bool:
    """Return whether a tick has moved the watermark, as only a closing tick does."""
    return plan.derived_after(rule, NOTHING_STAGED) != plan.recorded_us


def as_closing(plan: RecordedPlan) -> RecordedPlan:
    """Return a tick as one that closes what is open; it fires no clock timers."""
    return replace(plan, closes_through_us=plan.recorded_us)
