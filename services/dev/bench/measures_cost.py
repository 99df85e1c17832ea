"""What it costs to measure a batch: `python -m services.dev.bench.measures_cost`.

CPU of the clock around a task's steps, of adding tasks up and writing them as JSON, and
the way of the votes' share through Spark. The row in Postgres is not in it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from sinks.protocol.measures import (
    Measures,
    measures_json,
    parse_measures,
    sum_measures,
)
from sinks.step_clock import StepClock

_ROUNDS = 5_000
#: Of a task with windows, in the order in which it takes them.
_STEPS = (
    "read",
    "decode",
    "validate",
    "deduplicate",
    "make_rows",
    "windows",
    "copy",
    "copy",
    "copy",
    "windows",
)


def _task() -> Measures:
    clock = StepClock()
    for step in _STEPS:
        with clock.spent_on(step) as spent:
            spent.rows_in += 1
    return clock.measures()


def _cpu_us(work: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(_ROUNDS):
        work()
    return (time.process_time() - began) / _ROUNDS * 1e6


def main() -> None:
    """Measure, and print one JSON object."""
    task = _task()
    written = json.dumps(measures_json(task))
    figures = {
        "task_us": _cpu_us(_task),
        "vote_us": _cpu_us(
            lambda: parse_measures(json.loads(json.dumps(measures_json(task))))
        ),
        "batch_us": _cpu_us(
            lambda: json.dumps(measures_json(sum_measures([task, task])))
        ),
        "bytes": len(written),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
