"""The times of some batches, added up so that rules can compare them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tallyweir.sinks.diagnosis.batch_time import (
    BETWEEN,
    MeasuredBatch,
    added_parts,
    staged_by_tasks,
)
from tallyweir.sinks.protocol.measures import Measures, sum_measures


class LoopTimes:
    """The times of a driver's loop over some batches, and of waiting since.

    A driver's first batch pays for the start of workers and code, so its times are left
    out if there are other batches.

    Args:
        batches: Batches with measures.
        partitions: Number of partitions that a batch may read.
        idle_s: Seconds that the loop has waited since the last of them.
    """

    def __init__(
        self,
        batches: Sequence[MeasuredBatch],
        *,
        partitions: int = 0,
        idle_s: float = 0.0,
    ) -> None:
        # A driver's first batch has no COMMIT before it.
        warm = [one for one in batches if "commit_before" in one.measures.seconds]
        self._batches = warm or batches
        self._partitions = partitions
        self.parts = added_parts(self._batches)
        self.parts[BETWEEN] = self.parts.get(BETWEEN, 0.0) + idle_s
        self.whole = sum(self.parts.values())
        count = max(1, len(self._batches))
        #: Records per batch.
        self.rows = sum(batch.read for batch in self._batches) / count
        #: Seconds per batch.
        self.loop_s = self.whole / count

    def share(self, *parts: str) -> float:
        """Return the share of some parts together."""
        if not self.whole:
            return 0.0
        return sum(self.parts.get(name, 0.0) for name in parts) / self.whole

    @property
    def slots(self) -> int:
        return max((one.measures.slots for one in self._batches), default=0)

    @property
    def is_by_tasks(self) -> bool:
        """Whether Spark's tasks staged the batches, and not the driver."""
        return any(staged_by_tasks(one.measures) for one in self._batches)

    def busiest_task(self, *, has_backlog: bool) -> tuple[float, int]:
        """Return the share of the busiest task in phase one, and the number of tasks.

        With a backlog, a partition without records counts as a task without work: the
        backlog is in the others.
        """
        found = []
        for one in self._batches:
            tasks = one.measures.task_seconds
            if not any(tasks) or not staged_by_tasks(one.measures):
                continue
            count = max(len(tasks), self._partitions if has_backlog else 0)
            found.append(_busiest(max(tasks), sum(tasks), count, one.measures))
        return _middle(found)

    def busiest_of_keys(self) -> tuple[float, int]:
        """Return the same for the tasks that call functions on keyed state."""
        each = ((one.measures.steps.get("keys"), one) for one in self._batches)
        return _middle(
            [
                _busiest(step.seconds_max, step.seconds, step.tasks, one.measures)
                for step, one in each
                if step is not None and step.seconds
            ]
        )

    def hottest_told(self) -> str:
        """Say which key is the hottest of its output, if any is known."""
        found = sum_measures(
            Measures(hot_keys=one.measures.hot_keys) for one in self._batches
        ).hot_keys
        each = [
            (events / one.events, key, output)
            for output, one in found.items()
            for key, events in one.keys.items()
        ]
        if not each:
            return ""
        share, key, output = max(each)
        return f"; of the events of {output}, {share:.0%} are of the key {key}"

    def commit_s(self) -> float:
        """Return the median seconds of a COMMIT; 0 if no COMMIT is known."""
        found = [
            one.measures.seconds["commit_before"]
            for one in self._batches
            if "commit_before" in one.measures.seconds
        ]
        return median(found) if found else 0.0


def _busiest(
    greatest_s: float, all_s: float, tasks: int, measures: Measures
) -> tuple[float, int]:
    """Return the share of a task, and how many tasks ran at a time.

    If there are more tasks than can run at a time, the slowest delays the batch only
    if it takes longer than a slot's share of the whole work.
    """
    return greatest_s / all_s, min(tasks, measures.slots or tasks)


def _middle(found: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Return the value of the middle batch, since one batch may have hung."""
    return sorted(found)[len(found) // 2] if found else (1.0, 1)
