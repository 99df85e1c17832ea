"""``tallyweir.spark_jobs.batch PIPELINE --input FILE --run NAME``: one batch run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tallyweir.sinks.protocol.batch_run import BatchRun, Disposition
from tallyweir.spark_jobs.engine.program import (
    ALL_DIED,
    dead_told,
    end_on_interrupt,
    read_pipeline,
    run_program,
)

_TOLD = "interrupted: the same command finishes the run, unless it is done"


def main() -> int:
    """Do a run, print its result on stdout, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tallyweir.spark_jobs.batch")
    parser.add_argument("pipeline", type=Path)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", type=Path, action="append", default=[])
    source.add_argument("--offsets", action="append", default=[])
    parser.add_argument("--run", required=True)
    parser.add_argument("--disposition", type=Disposition, default=Disposition.APPEND)
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args()
    end_on_interrupt(_TOLD)
    return run_program("run", lambda: _execute(arguments), debug=arguments.debug)


def _execute(arguments: argparse.Namespace) -> int:
    pipeline, settings = read_pipeline(arguments.pipeline)
    # Spark takes seconds to import; report mistakes in the pipeline before.
    from tallyweir.spark_jobs.batch.file_source import open_files  # noqa: PLC0415
    from tallyweir.spark_jobs.batch.kafka_ranges import open_ranges, parse_ranges  # noqa: PLC0415
    from tallyweir.spark_jobs.batch.run_execution import BoundedInput, RunExecution  # noqa: PLC0415
    from tallyweir.spark_jobs.batches.prepared_pipeline import read_pipeline_files  # noqa: PLC0415
    from tallyweir.spark_jobs.engine.spark_failure import explaining_lost_jvm  # noqa: PLC0415

    files = read_pipeline_files(pipeline, arguments.pipeline, settings.home_dsn)
    source: BoundedInput = (
        open_files(files, arguments.input)
        if arguments.input
        else open_ranges(settings, pipeline, parse_ranges(arguments.offsets))
    )
    run = BatchRun(
        name=arguments.run, inputs=source.inputs, disposition=arguments.disposition
    )
    with explaining_lost_jvm():
        report = RunExecution(settings, files, run, source).execute()
    sys.stdout.write(f"{report}\n")
    told = dead_told(pipeline.name, report.counts)
    if told is not None:
        sys.stderr.write(f"{told}\n")
    return ALL_DIED if report.counts.is_all_dead else 0


if __name__ == "__main__":
    sys.exit(main())
