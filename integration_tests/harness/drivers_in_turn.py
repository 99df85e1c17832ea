"""``python -m integration_tests.harness.drivers_in_turn``: runs drivers as it is told.

Each line on stdin is a driver's arguments, its whole environment, and the file that it
writes to instead of stderr; each line on stdout is the exit code of one, null if it
failed as no driver may. Spark starts for the first and serves all of them. A driver's
Python workers end with it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
from pyspark import SparkContext

from tallyweir.spark_jobs.__main__ import main as run_driver
from tallyweir.spark_jobs.batch.__main__ import main as do_batch_run
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_session import start_spark_session

_DAEMON = "tallyweir.spark_jobs.engine.python_daemon"


def run_drivers(state: Path) -> None:
    """Run one after the other until stdin ends.

    Args:
        state: The state directory of Spark.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    nowhere = {"TALLYWEIR_KAFKA_BOOTSTRAP": "none", "TALLYWEIR_STATE_DIR": str(state)}
    settings = DriverSettings.from_environment({**os.environ, **nowhere}, {})
    spark = start_spark_session(settings, name="drivers-in-turn")
    own = dict(os.environ)
    for line in sys.stdin:
        arguments, environment, told = json.loads(line)
        os.environ.clear()
        os.environ.update(environment)
        _tell_workers(spark.sparkContext, own, environment)
        sys.argv = ["driver", *arguments]
        with Path(told).open("w") as file:
            os.dup2(file.fileno(), 2)
        code = _code_of(do_batch_run if "--run" in arguments else run_driver)
        sys.stderr.flush()
        _end_workers()
        answers.write(f"{json.dumps(code)}\n")
        answers.flush()


def _tell_workers(
    context: SparkContext, own: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    """Give the workers that start from now on the driver's variables."""
    for name in context.environment.keys() - own.keys() - {"PYTHONHASHSEED"}:
        del context.environment[name]
    context.environment.update(
        {name: text for name, text in environment.items() if own.get(name) != text}
    )


def _code_of(main: Callable[[], int]) -> int | None:
    try:
        return main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 - the test tells it
        traceback.print_exc()
        return None


def _end_workers() -> None:
    """Kill the processes from which Spark forks workers, and what they have forked."""
    for process in psutil.Process().children(recursive=True):
        try:
            if _DAEMON in process.cmdline():
                process.kill()
        except psutil.NoSuchProcess:
            continue


if __name__ == "__main__":
    run_drivers(Path(sys.argv[1]))
