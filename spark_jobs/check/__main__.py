"""``tallyweir.spark_jobs.check PIPELINE``: runs the cases beside a pipeline file."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE
from tallyweir.sinks.settings import SCRATCH_DSN_VARIABLE
from tallyweir.spark_jobs.engine.pipeline_code import load_with_code
from tallyweir.spark_jobs.engine.program import run_program

_FAILED = 1


def main() -> int:
    """Run all cases, say on stdout how each went, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tallyweir.spark_jobs.check")
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args()
    return run_program(
        "check", lambda: _check(arguments.pipeline), debug=arguments.debug
    )


def _check(pipeline_file: Path) -> int:
    began = time.monotonic()
    pipeline = load_with_code(pipeline_file)
    # Spark takes seconds to import; mistakes in the files are told before.
    from tallyweir.spark_jobs.check.check_file import read_check_file  # noqa: PLC0415

    check_file = pipeline_file.with_suffix(".check.yaml")
    checked = read_check_file(check_file, pipeline, pipeline_file)
    cases = checked.cases
    from tallyweir.spark_jobs.check.case_result import find_differences  # noqa: PLC0415
    from tallyweir.spark_jobs.check.case_run import (  # noqa: PLC0415
        define_own_tables,
        run_case,
    )
    from tallyweir.spark_jobs.engine.spark_failure import explaining_lost_jvm  # noqa: PLC0415

    # No database that the pipeline names is opened.
    scratch = os.environ[SCRATCH_DSN_VARIABLE]
    os.environ[DATABASES_VARIABLE] = json.dumps(
        dict.fromkeys(pipeline.wanted_databases, scratch)
    )
    tables = define_own_tables(checked)
    not_demanded: dict[str, None] = {}
    failed = 0
    for case in cases:
        with (
            tempfile.TemporaryDirectory(prefix="tallyweir-check-") as directory,
            explaining_lost_jvm(),
        ):
            done = run_case(case, checked, tables, pipeline_file, Path(directory))
        not_demanded |= dict.fromkeys(done.not_demanded)
        differences = list(find_differences(case, done.results))
        failed += bool(differences)
        sys.stdout.write(f"{'FAILED' if differences else 'ok    '}  {case.name}\n")
        for line in differences:
            sys.stdout.write(f"        {line}\n")
        sys.stdout.flush()
    for one in not_demanded:
        sys.stdout.write(f"not checked: {one}\n")
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"{check_file}: {len(cases)} cases, {failed} failed, in {seconds:.0f} s.\n"
    )
    return _FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
