"""``tallyweir.spark_jobs PIPELINE.yaml``: the driver process of one pipeline."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from tallyweir.sinks.metrics_endpoint import serve_metrics
from tallyweir.sinks.postgres.records.driver_log import DriverLog
from tallyweir.spark_jobs.engine.kept_memory import keep_freed_memory
from tallyweir.spark_jobs.engine.program import (
    ALL_DIED,
    dead_told,
    read_pipeline,
    run_program,
    stop_on_signals,
)

_DONE = 0


def main() -> int:
    """Run a driver and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tallyweir.spark_jobs")
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args()
    stop = stop_on_signals()
    with closing(DriverLog()) as log:
        return run_program(
            "driver",
            lambda: _run(arguments.pipeline, log, stop, once=arguments.once),
            debug=arguments.debug,
            keep=log.take,
        )


def _run(
    pipeline_file: Path, log: DriverLog, stop: threading.Event, *, once: bool
) -> int:
    keep_freed_memory()
    pipeline, settings = read_pipeline(pipeline_file)
    log.open(settings.home_dsn, pipeline.name)
    # Spark takes seconds to import; mistakes in the pipeline are told before.
    from tallyweir.spark_jobs.driver.driver import Driver  # noqa: PLC0415
    from tallyweir.spark_jobs.engine.spark_failure import explaining_lost_jvm  # noqa: PLC0415

    driver = Driver(
        settings, pipeline, pipeline_file=pipeline_file, once=once, stop=stop
    )
    metrics = driver.metrics
    with (
        serve_metrics(metrics.registry, live={}, ready=metrics.ready_checks),
        explaining_lost_jvm(),
    ):
        counts = driver.run()
    told = dead_told(pipeline.name, counts) if once else None
    if told is None:
        return _DONE
    # Those who run it once read the end, and the exit code.
    sys.stderr.write(f"{told}\n")
    return ALL_DIED if counts.is_all_dead else _DONE


def _end(code: int) -> NoReturn:
    """End the process with a code, whatever its threads are doing.

    Python would take its interpreter apart first, and C++ its libraries. What a
    thread still computes in Arrow meanwhile then aborts the process, with SIGABRT in
    place of the code.
    """
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main())
