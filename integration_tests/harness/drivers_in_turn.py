"""``python -m integration_tests.harness.drivers_in_turn DIRECTORY --once``.

Runs a driver for each pipeline file of a directory, one after the other in one process,
and logs how each ended. Spark starts only for the first, so that many drivers that are
refused cost hardly more than one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import structlog

from tallyweir.spark_jobs.__main__ import main

#: What is logged at the end of each driver.
ENDED = "driver in turn ended"


def run_drivers() -> None:
    """Run them all, whatever becomes of each."""
    program, directory, *options = sys.argv
    for pipeline_file in sorted(Path(directory).glob("*.py")):
        sys.argv = [program, str(pipeline_file), *options]
        code = main()
        structlog.get_logger().info(ENDED, pipeline=pipeline_file.stem, code=code)


if __name__ == "__main__":
    run_drivers()
