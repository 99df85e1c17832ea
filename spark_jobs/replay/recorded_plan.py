"""The plan of a batch that is computed again, as the ledger has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sinks.postgres.audit.replay.replay_ledger import RecordedBatch
from sinks.protocol.identity import BatchKey
from sinks.protocol.ports import BatchPlan, Progress
from sinks.protocol.votes import NOTHING_STAGED, BatchTally
from sinks.protocol.watermark import ClockRule


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPlan(BatchPlan):
    """A plan that leaves the watermark where the ledger says that it was left.

    So lateness and timers are decided as they were, also where the clocks of the
    partitions are not known, because they were moved by batches that are not replayed.
    """

    recorded_us: int | None

    def watermark_after(self, rule: ClockRule, tally: BatchTally) -> int | None:
        """Return what the ledger has."""
        del rule, tally
        return self.recorded_us

    def derived_after(self, rule: ClockRule, tally: BatchTally) -> int | None:
        """Return where the batch itself leaves the watermark, by the rule."""
        return BatchPlan.watermark_after(self, rule, tally)


def recorded_plan(
    batch: RecordedBatch,
    key: BatchKey,
    progress: Progress,
    *,
    topic_ids: Mapping[str, str],
    lookups: Mapping[str, str],
) -> RecordedPlan:
    """Plan a batch as it was planned; the scratch database stands right before it."""
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
    """Tell a tick that has moved the watermark, as only one that closes does."""
    return plan.derived_after(rule, NOTHING_STAGED) != plan.recorded_us


def as_closing(plan: RecordedPlan) -> RecordedPlan:
    """Return a tick as one that closes what is open; it fires no timer of a clock."""
    return replace(plan, closes_through_us=plan.recorded_us)
