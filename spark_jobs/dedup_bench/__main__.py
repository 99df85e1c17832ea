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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.spark_jobs.dedup_bench.catalog_figures import (
    ask_all,
    disk_bytes,
    memory_bytes,
    settle,
)
from tallyweir.spark_jobs.dedup_bench.ids_driver import (
    TASKS,
    EventTimes,
    IdsDriver,
    PlannedBatch,
    copy_directory,
    started_ids_driver,
)
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.kept_memory import keep_freed_memory

_MICRO = 1_000_000

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
        asked = ask_all(driver, batch)
        return {
            "claimed_seconds": claimed - began,
            "catalog_opened_seconds": answered - waits,
            "probe_us": _each(asked.probing, batch),
            "survivors": asked.survivors,
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
        room = {
            "memory_bytes": memory_bytes() - empty,
            "disk_bytes": disk_bytes(copy_directory(settings)),
        }
        return {
            **room,
            **_probe(driver, every),
            **_look_ups(driver, _load(driver, task["ask_new"]), every[0]),
            **_append(driver, task["append"]),
        }


def _probe(driver: IdsDriver, batches: Sequence[PlannedBatch]) -> Figures:
    """Ask in rounds that are discarded, so that the catalog stays as it is."""
    asked = [ask_all(driver, batch) for batch in batches]
    events = batches[0].events
    return {
        "probe_us": statistics.median(one.probing for one in asked) / events * _MICRO,
        "probe_processor_us": statistics.median(one.probing_processor for one in asked)
        / events
        * _MICRO,
        "probe_survivors": [one.survivors for one in asked],
    }


def _look_ups(driver: IdsDriver, new: PlannedBatch, mixed: PlannedBatch) -> Figures:
    of_new = ask_all(driver, new).searches
    assert of_new["met"] == 0, "an ID that is new was found"
    of_mixed = ask_all(driver, mixed).searches
    return {
        "false_positive_rate_configured": FALSE_POSITIVES,
        # The catalog holds none of these IDs, so each look-up is a false positive.
        "false_positive_rate": of_new["looked_up"] / of_new["asked"],
        "looked_up_share": of_mixed["looked_up"] / of_mixed["asked"],
    }


def _append(driver: IdsDriver, files: Sequence[str]) -> Figures:
    """Publish batches one after the other, while merges run in the background."""
    totals = {"filing": 0.0, "probing": 0.0, "publishing": 0.0}
    events = 0
    survivors = []
    busy = time.process_time()
    for file in files:
        batch = _load(driver, file)
        asked = ask_all(driver, batch)
        began = time.perf_counter()
        driver.publish(batch, asked.claims)
        totals["publishing"] += time.perf_counter() - began
        totals["filing"] += asked.filing
        totals["probing"] += asked.probing
        events += batch.events
        survivors.append(asked.survivors)
    each = {
        f"append_{name}_us": used / events * _MICRO for name, used in totals.items()
    }
    return {
        **each,
        "append_us": sum(each.values()),
        "append_processor_us": (time.process_time() - busy) / events * _MICRO,
        "append_survivors": survivors,
    }


def _load(driver: IdsDriver, file: str) -> PlannedBatch:
    return driver.plan(np.load(file))


def _each(seconds: float, batch: PlannedBatch) -> float:
    return seconds / batch.events * _MICRO


_TASKS: Mapping[str, Callable[[DriverSettings, Task], Figures]] = {
    "fill": fill,
    "start": start,
    "measure": measure,
}

if __name__ == "__main__":
    main()
