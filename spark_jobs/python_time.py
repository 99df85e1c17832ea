"""How long Spark's Python workers took for what a pipeline's own Python computes.

A user's transform and the models run in workers of their own, beneath the tasks that
stage. Spark counts their time in the plan of the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from sinks.protocol.measures import NOTHING_MEASURED, Measures, StepMeasure

#: Going through a plan takes some milliseconds, so later batches are passed by.
_FIRST_BATCHES = 3
_EVERY_S = 5.0


class PythonTime:
    """Measures the Python of a pipeline, of some of its batches.

    Args:
        step: What it is called.
        monotonic: Seconds.
    """

    def __init__(
        self, step: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._step = step
        self._monotonic = monotonic
        self._batches = 0
        self._next_s = 0.0

    def of(self, voted: DataFrame) -> Measures:
        """Return what a job's Python took; nothing for batches that are passed by.

        Args:
            voted: What was collected; its own topmost Python is the task that stages.
        """
        now = self._monotonic()
        self._batches += 1
        if self._batches > _FIRST_BATCHES and now < self._next_s:
            return NOTHING_MEASURED
        self._next_s = now + _EVERY_S
        plan = voted._jdf.queryExecution().executedPlan()  # noqa: SLF001 - Spark's own
        _task, *own = _python_nodes(plan)
        waited_ms = sum(_value(node, "pythonTotalTime") for node in own)
        # Workers that begin are not the pipeline's.
        begun_ms = sum(
            _value(node, name)
            for node in own
            for name in ("pythonBootTime", "pythonInitTime")
        )
        rows = max((_value(node, "pythonNumRowsReceived") for node in own), default=0)
        seconds = max(0, waited_ms - begun_ms) / 1_000
        return Measures(
            steps={
                self._step: StepMeasure(seconds=seconds, rows_in=rows, rows_out=rows)
            }
        )


def _python_nodes(node: Any) -> Iterator[Any]:  # noqa: ANN401 - of the JVM
    """Yield the steps of a plan that run Python, from its end to its beginning."""
    name = node.nodeName()
    if name == "AdaptiveSparkPlan":
        yield from _python_nodes(node.executedPlan())
        return
    if name.endswith("QueryStage"):
        yield from _python_nodes(node.plan())
        return
    if node.metrics().contains("pythonTotalTime"):
        yield node
    children = node.children()
    for number in range(children.size()):
        yield from _python_nodes(children.apply(number))


def _value(node: Any, metric: str) -> int:  # noqa: ANN401 - of the JVM
    found = node.metrics().get(metric)
    return int(found.get().value()) if found.isDefined() else 0
