"""``tallyweir.spark_jobs PIPELINE.yaml``: the driver process of one pipeline."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

import structlog

from tallyweir.schemas.errors import ContractError
from tallyweir.sinks.metrics_endpoint import serve_metrics
from tallyweir.sinks.postgres.records.driver_log import DriverLog
from tallyweir.sinks.protocol.errors import TallyweirError, describe_error
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.kept_memory import keep_freed_memory
from tallyweir.spark_jobs.engine.pipeline_code import load_with_code
from tallyweir.spark_jobs.engine.program import (
    ALL_DIED,
    configure_spark_logging,
    dead_told,
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
    log = DriverLog()
    try:
        configure_spark_logging(log.take)
        keep_freed_memory()
        return _run(arguments.pipeline, log, stop, once=arguments.once)
    except (TallyweirError, ContractError) as error:
        if arguments.debug:
            structlog.get_logger().exception("driver failed")
        sys.stderr.write("\n".join(describe_error(error)) + "\n")
        log.take(
            {
                "level": "error",
                "event": "driver ended",
                "error_code": error.code,
                "saw": error.saw,
                "fix": error.fix,
            }
        )
        return error.exit_code
    finally:
        log.close()


def _run(
    pipeline_file: Path, log: DriverLog, stop: threading.Event, *, once: bool
) -> int:
    pipeline = load_with_code(pipeline_file)
    settings = DriverSettings.from_environment(os.environ, pipeline.wanted_databases)
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

    Python would take its interpreter apart first, and C++ its libraries. What a thread
    that nobody waits for computes in Arrow meanwhile then aborts the process, with
    SIGABRT in place of the code.
    """
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main())
