"""The process from which Spark forks Python workers; a Spark setting names it.

PySpark's own daemon forks an empty interpreter. Each worker then loads the libraries by
itself, reads the directories of the zip files on its path again before every task, and
collects garbage after every task. Measured on this product, that took two thirds of a
worker's time (``docs/benchmarks.md``). This daemon loads the libraries once, before the
first fork, and not from zip files. It leaves garbage collection to Python's own
thresholds, and keeps freed memory for the next task.
"""

from __future__ import annotations

import importlib
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from tallyweir.spark_jobs.engine.kept_memory import (
    keep_freed_memory,
    leave_lasting_objects,
)


def main() -> None:
    """Serve Spark's requests for workers until Spark ends."""
    # The terminal sends Ctrl-C to every process; only the driver ends workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # PySpark is installed as a package. Its zip copies come first on the path, and
    # Python compiles every module that it imports from them again.
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    sys.path_importer_cache.clear()
    daemon = importlib.import_module("pyspark.daemon")
    # Load everything that a task needs, so that all workers share it.
    importlib.import_module("tallyweir.spark_jobs.task.stage_task")
    importlib.import_module("tallyweir.spark_jobs.keyed.key_task")
    # Arrow loads pandas, if it is installed, at its first conversion to a numpy array.
    np.asarray(pa.array([0]))
    keep_freed_memory()
    leave_lasting_objects()
    vars(daemon)["gc"] = SimpleNamespace(collect=_leave_garbage)
    daemon.manager()


def _leave_garbage() -> None:
    """Replace the collection that PySpark's daemon runs after each task."""


if __name__ == "__main__":
    main()
