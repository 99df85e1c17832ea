"""``tallyweir.spark_jobs.replay PIPELINE``: computes a pipeline again, and compares."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import structlog

from tallyweir.schemas.errors import ContractError
from tallyweir.sinks.postgres.audit.replay.replay_receipt import ReplayReceipt
from tallyweir.sinks.protocol.errors import TallyweirError, describe_error
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.pipeline_code import load_with_code
from tallyweir.spark_jobs.engine.program import configure_spark_logging

_INTERRUPTED = 130


def main() -> int:
    """Do a replay, write its receipt to stdout as JSON, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tallyweir.spark_jobs.replay")
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--since")
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        configure_spark_logging()
        receipt = _replay(arguments.pipeline, arguments.since)
    except (TallyweirError, ContractError) as error:
        if arguments.debug:
            structlog.get_logger().exception("replay failed")
        sys.stderr.write("\n".join(describe_error(error)) + "\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("The replay was interrupted; its databases are dropped.\n")
        return _INTERRUPTED
    sys.stdout.write(json.dumps(receipt.as_json()) + "\n")
    return 0 if receipt.is_verified else 1


def _replay(path: Path, since: str | None) -> ReplayReceipt:
    pipeline = load_with_code(path)
    settings = DriverSettings.from_environment(os.environ, pipeline.wanted_databases)
    # Spark takes seconds to import; report mistakes in the pipeline before.
    from tallyweir.spark_jobs.batches.prepared_pipeline import read_pipeline_files  # noqa: PLC0415
    from tallyweir.spark_jobs.engine.spark_failure import explaining_lost_jvm  # noqa: PLC0415
    from tallyweir.spark_jobs.replay.replay import Replay  # noqa: PLC0415

    files = read_pipeline_files(pipeline, path)
    with explaining_lost_jvm():
        return Replay(settings=settings, files=files, since=since, tell=_tell).run()


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
