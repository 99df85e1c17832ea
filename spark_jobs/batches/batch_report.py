"""What happened to a batch, and how long each of its phases took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sinks.protocol.coordinator import BatchResult
from sinks.protocol.ports import BatchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What happened to a batch, for the log and for who watches the driver."""

    plan: BatchPlan
    result: BatchResult
    seconds: float
    #: Seconds of it by phase: plan, stage and publish, each with its repeats, and wait,
    #: for the batch before it to be published and for phase 2b.
    phases: Mapping[str, float]


@dataclass(slots=True)
class BatchTimes:
    """When a batch began, and the seconds of its phases so far.

    Attributes:
        between: From when the driver could have begun it: what Spark took to plan it,
            or what events took to come.
    """

    between: float = 0.0
    began: float = field(default_factory=time.monotonic)
    plan: float = 0.0
    stage: float = 0.0
    publish: float = 0.0

    @contextmanager
    def spent_on(self, phase: str) -> Iterator[None]:
        """Count the block's time to a phase."""
        since = time.monotonic()
        try:
            yield
        finally:
            spent = getattr(self, phase) + time.monotonic() - since
            setattr(self, phase, spent)

    def before_publishing(self) -> dict[str, float]:
        """Return the seconds until now, at which the batch is about to be published."""
        wait = time.monotonic() - self.began - self.plan - self.stage - self.publish
        return {
            "between": self.between,
            "plan": self.plan,
            "stage": self.stage,
            "wait": wait,
        }

    def report(self, plan: BatchPlan, result: BatchResult) -> BatchReport:
        """Tell of the batch, which has ended."""
        seconds = time.monotonic() - self.began
        phases = {"plan": self.plan, "stage": self.stage, "publish": self.publish}
        phases["wait"] = seconds - sum(phases.values())
        return BatchReport(plan=plan, result=result, seconds=seconds, phases=phases)
