"""``tallyweir.spark_jobs.notebook PIPELINE --output DIRECTORY``: captures a slice."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.spark_jobs.engine.program import read_pipeline, run_program


def main() -> int:
    """Capture a slice, print its content on stdout, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tallyweir.spark_jobs.notebook")
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--records", type=int)
    source.add_argument("--offsets", action="append", default=[])
    source.add_argument("--input", type=Path, action="append", default=[])
    parser.add_argument("--run", default="notebook")
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args()
    return run_program("capture", lambda: _capture(arguments), debug=arguments.debug)


def _capture(arguments: argparse.Namespace) -> int:
    pipeline, settings = read_pipeline(arguments.pipeline)
    # Spark takes seconds to import; report mistakes in the pipeline before.
    from tallyweir.spark_jobs.batch.file_source import open_files  # noqa: PLC0415
    from tallyweir.spark_jobs.batch.kafka_ranges import parse_ranges  # noqa: PLC0415
    from tallyweir.spark_jobs.batches.prepared_pipeline import read_pipeline_files  # noqa: PLC0415
    from tallyweir.spark_jobs.engine.spark_failure import explaining_lost_jvm  # noqa: PLC0415
    from tallyweir.spark_jobs.notebook.capture import SliceCapture  # noqa: PLC0415

    files = read_pipeline_files(pipeline, arguments.pipeline, settings.home_dsn)
    capture = SliceCapture(settings=settings, files=files, directory=arguments.output)
    with explaining_lost_jvm():
        if arguments.input:
            source = open_files(files, arguments.input)
            run = BatchRun(name=arguments.run, inputs=source.inputs)
            manifest = capture.of_files(source, run)
        elif arguments.offsets:
            manifest = capture.ranges(parse_ranges(arguments.offsets))
        else:
            manifest = capture.newest(arguments.records)
    for one in manifest.ranges:
        sys.stdout.write(f"{one.records} records of {one.offsets}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
