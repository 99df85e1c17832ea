"""The result of a batch, the time of its phases, and the CPU time that they took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
from pyspark.sql import SparkSession

from tallyweir.sinks.protocol.coordinator import BatchResult
from tallyweir.sinks.protocol.ports import BatchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The result of a batch, for the log and for the driver's metrics."""

    plan: BatchPlan
    result: BatchResult
    seconds: float
    #: Seconds by phase: plan, stage and publish, each with its repeats, and wait: for
    #: the publishing of the batch before, and for phase 2b.
    phases: Mapping[str, float]


@dataclass(slots=True)
class BatchTimes:
    """The start of a batch, and the seconds of its phases so far.

    Attributes:
        between: Seconds since the driver could have begun it: the time that Spark took
            to plan it, or that events took to arrive.
    """

    between: float = 0.0
    began: float = field(default_factory=time.monotonic)
    plan: float = 0.0
    stage: float = 0.0
    publish: float = 0.0

    @contextmanager
    def spent_on(self, phase: str) -> Iterator[None]:
        """Add the block's time to a phase."""
        since = time.monotonic()
        try:
            yield
        finally:
            spent = getattr(self, phase) + time.monotonic() - since
            setattr(self, phase, spent)

    def before_publishing(self) -> dict[str, float]:
        """Return the seconds so far, right before the batch is published."""
        wait = time.monotonic() - self.began - self.plan - self.stage - self.publish
        return {
            "between": self.between,
            "plan": self.plan,
            "stage": self.stage,
            "wait": wait,
        }

    def report(self, plan: BatchPlan, result: BatchResult) -> BatchReport:
        """Return the report of the batch, which has ended."""
        seconds = time.monotonic() - self.began
        phases = {"plan": self.plan, "stage": self.stage, "publish": self.publish}
        phases["wait"] = seconds - sum(phases.values())
        return BatchReport(plan=plan, result=result, seconds=seconds, phases=phases)


class ProcessCpu:
    """Tells the CPU time of the driver and its JVM since the last call.

    It does not count Spark's Python workers: tasks report their own time.

    Args:
        spark: The session; its JVM runs on the driver's machine.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - Spark has no other way to it
        assert jvm is not None, "a driver has a JVM"
        self._jvm = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """Return the CPU seconds since the last call, by process."""
        before, self._before = self._before, self._now()
        return {name: self._before[name] - before[name] for name in before}

    def _now(self) -> dict[str, float]:
        jvm = self._jvm.cpu_times()
        return {"driver": time.process_time(), "jvm": jvm.user + jvm.system}
