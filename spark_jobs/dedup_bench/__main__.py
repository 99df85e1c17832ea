"""The program of ``bench dedup``: fills a catalog, starts on it, measures it.

The program reads its task as one line of JSON. The last line that it prints holds its
figures, as JSON. Batches are files of numbers, as ``numpy.save`` writes them.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tallyweir.spark_jobs.dedup_bench.catalog_figures import (
    ask_all,
    memory_bytes,
    settle,
)
from tallyweir.spark_jobs.dedup_bench.ids_driver import (
    TASKS,
    EventTimes,
    IdsDriver,
    PlannedBatch,
    started_ids_driver,
)
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.kept_memory import keep_freed_memory

Task = Mapping[str, Any]
Figures = dict[str, Any]


def main() -> None:
    """Do one task in this process, which is fresh as a driver's is."""
    keep_freed_memory()
    task = json.load(sys.stdin)
    settings = DriverSettings.from_environment(os.environ, {})
    figures = _TASKS[task["do"]](settings, task)
    sys.stdout.write(json.dumps(figures) + "\n")


def fill(settings: DriverSettings, task: Task) -> Figures:
    """Publish the events ``begin`` to ``end`` in batches, all of them new.

    ``times`` says when they happened, if not at the times of ``bench dedup``.
    """
    begin, end = task["begin"], task["end"]
    times = EventTimes(**task.get("times", {}))
    began = time.perf_counter()
    with started_ids_driver(settings, times) as driver:
        for first in range(begin, end, task["batch"]):
            last = min(first + task["batch"], end)
            batch = driver.plan(np.arange(first, last, dtype=np.int64))
            driver.publish_new(batch)
    return {"seconds": time.perf_counter() - began}


def start(settings: DriverSettings, task: Task) -> Figures:
    """Start as a driver does, and let a batch ask, before anything is merged."""
    numbers = np.load(task["ask"])
    began = time.perf_counter()
    with started_ids_driver(settings) as driver:
        claimed = time.perf_counter()
        # Hashing and sorting are the tasks' work, so they are not counted.
        batch = driver.plan(numbers)
        waits = time.perf_counter()
        driver.holder.ask(driver.begin(batch), batch.questions[0].candidates)
        answered = time.perf_counter()
        return {
            "seconds": claimed - began + answered - waits,
            "survivors": [ask_all(driver, batch).survivors],
        }


def measure(settings: DriverSettings, task: Task) -> Figures:
    """Measure a catalog as it is, then while batches are appended to it."""
    with started_ids_driver(settings) as driver:
        few = driver.plan(np.arange(TASKS, dtype=np.int64))
        every = [_load(driver, file) for file in task["ask"]]
        empty = memory_bytes()
        # Repeats of IDs of all ages make the holder fetch the chunks of all buckets.
        for batch in (*every, *every):
            ask_all(driver, batch)
        settle(driver, few)
        memory = memory_bytes() - empty
        # These rounds are discarded, so the catalog stays as it is.
        probed = [ask_all(driver, batch) for batch in every]
        appended = [_append(driver, file) for file in task["append"]]
    return {
        "memory_bytes": memory,
        "probe_seconds": statistics.median(one.probing for one in probed),
        "append_seconds": statistics.mean(seconds for seconds, _ in appended),
        "survivors": [
            *(one.survivors for one in probed),
            *(survivors for _, survivors in appended),
        ],
    }


def _append(driver: IdsDriver, file: str) -> tuple[float, int]:
    """Publish a batch, while merges run in the background."""
    batch = _load(driver, file)
    began = time.perf_counter()
    asked = ask_all(driver, batch)
    driver.publish(batch, asked.claims)
    return time.perf_counter() - began, asked.survivors


def _load(driver: IdsDriver, file: str) -> PlannedBatch:
    return driver.plan(np.load(file))


_TASKS: Mapping[str, Callable[[DriverSettings, Task], Figures]] = {
    "fill": fill,
    "start": start,
    "measure": measure,
}

if __name__ == "__main__":
    main()
