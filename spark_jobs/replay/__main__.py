"""``tallyweir.spark_jobs.replay PIPELINE``: computes a pipeline again, and compares."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from tallyweir.sinks.postgres.audit.replay.replay_receipt import ReplayReceipt
from tallyweir.spark_jobs.engine.program import read_pipeline, run_program

_INTERRUPTED = 130


def main() -> int:
    """Do a replay, write its receipt to stdout as JSON, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tallyweir.spark_jobs.replay")
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--since")
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    return run_program(
        "replay",
        lambda: _replay(arguments.pipeline, arguments.since),
        debug=arguments.debug,
    )


def _replay(path: Path, since: str | None) -> int:
    try:
        receipt = _compute(path, since)
    except KeyboardInterrupt:
        sys.stderr.write("The replay was interrupted; its databases are dropped.\n")
        return _INTERRUPTED
    sys.stdout.write(json.dumps(receipt.as_json()) + "\n")
    return 0 if receipt.is_verified else 1


def _compute(path: Path, since: str | None) -> ReplayReceipt:
    pipeline, settings = read_pipeline(path)
    # Spark takes seconds to import; report mistakes in the pipeline before.
    from tallyweir.spark_jobs.batches.prepared_pipeline import read_pipeline_files  # noqa: PLC0415
    from tallyweir.spark_jobs.engine.spark_failure import explaining_lost_jvm  # noqa: PLC0415
    from tallyweir.spark_jobs.replay.replay import Replay  # noqa: PLC0415

    files = read_pipeline_files(pipeline, path, settings.home_dsn)
    with explaining_lost_jvm():
        return Replay(settings=settings, files=files, since=since, tell=_tell).run()


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
