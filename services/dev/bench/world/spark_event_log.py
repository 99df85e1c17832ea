"""Reads Spark's event log of a driver under measurement."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tallyweir.services.dev.bench.world.bench_world import BenchPipeline
from tallyweir.services.local.embedded.state_directory import state_directory

_TASK_END = "SparkListenerTaskEnd"


def keep_event_log(pipeline: BenchPipeline) -> dict[str, str]:
    """Create the log's directory; return the variables that make a driver write it."""
    directory = _directory_of(pipeline)
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return {"PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"}


def read_shuffled_bytes(pipeline: BenchPipeline) -> int:
    """Add up the bytes that tasks of finished jobs wrote for other tasks."""
    (log,) = _directory_of(pipeline).iterdir()
    with log.open(encoding="utf-8") as lines:
        return sum_shuffled_bytes(lines)


def sum_shuffled_bytes(lines: Iterable[str]) -> int:
    """Add up the shuffled bytes in a log, whose last line may be incomplete."""
    written = 0
    for line in lines:
        if _TASK_END in line and line.endswith("\n"):
            event = json.loads(line)
            metrics = (event.get("Task Metrics") or {}).get("Shuffle Write Metrics")
            written += (metrics or {}).get("Shuffle Bytes Written", 0)
    return written


def _directory_of(pipeline: BenchPipeline) -> Path:
    return state_directory() / "bench" / "spark-events" / pipeline.name
