"""Measure the time of a pipeline's own Python in Spark's Python workers.

A user's transform and the models run in separate workers, beneath the tasks that stage.
Spark counts their time in the plan of the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from tallyweir.sinks.protocol.measures import Measures, StepMeasure

#: Reading a plan takes several milliseconds, so only some later batches are measured.
#: The others report the time per event of the last measured batch.
_FIRST_BATCHES = 3
_EVERY_S = 5.0


class PythonTime:
    """Measures the Python of a pipeline, in some of its batches.

    Args:
        step: The step's name in the measures.
        monotonic: Returns monotonic seconds.
    """

    def __init__(
        self, step: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._step = step
        self._monotonic = monotonic
        self._batches = 0
        self._next_s = 0.0
        self._event_s = 0.0

    def of(self, voted: DataFrame, *, rows: int, tasks: int) -> Measures:
        """Return the time of a job's Python.

        Args:
            voted: The collected frame; its topmost Python step is the staging task.
            rows: The number of events of the batch.
            tasks: The number of tasks that ran the Python.
        """
        now = self._monotonic()
        self._batches += 1
        if rows and (self._batches <= _FIRST_BATCHES or now >= self._next_s):
            self._next_s = now + _EVERY_S
            self._event_s = _python_seconds(voted) / rows
        took = StepMeasure(
            seconds=self._event_s * rows, rows_in=rows, rows_out=rows, tasks=tasks
        )
        return Measures(steps={self._step: took})


def _python_seconds(voted: DataFrame) -> float:
    plan = voted._jdf.queryExecution().executedPlan()  # noqa: SLF001 - Spark's own
    _task, *own = _python_nodes(plan)
    return sum(map(_own_ms, own)) / 1_000


def _own_ms(node: Any) -> int:  # noqa: ANN401 - of the JVM
    total, boot, init = (f"python{name}Time" for name in ("Total", "Boot", "Init"))
    return worked_ms(
        total=_value(node, total), boot=_value(node, boot), init=_value(node, init)
    )


def worked_ms(*, total: int, boot: int, init: int) -> int:
    """Return how long workers worked, from Spark's counts, all in milliseconds.

    The start of a worker is not work of the pipeline. A reused worker started before
    its task: Spark omits its boot, which would be negative, and adds its idle time to
    ``init``, although the total does not contain it. If some workers are reused and
    others are new, the result is too small.
    """
    return max(0, total - boot - init) if boot else total


def _python_nodes(node: Any) -> Iterator[Any]:  # noqa: ANN401 - of the JVM
    """Yield the steps of a plan that run Python, from its end to its start."""
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
