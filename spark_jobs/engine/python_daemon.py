"""The process that Spark forks Python workers from; named by a Spark setting.

PySpark's own daemon forks an empty interpreter, and each worker then loads the
libraries by itself, re-reads the directories of the zip files on its path before
every task, and collects garbage after every task. Measured on this product, two
thirds of a worker's time went there (``docs/benchmarks.md``). This daemon loads the
libraries once, before the first fork, and none from zip files, leaves the garbage to
Python's own thresholds and keeps freed memory for the next task.
"""

from __future__ import annotations

import importlib
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from spark_jobs.engine.kept_memory import keep_freed_memory, leave_lasting_objects


def main() -> None:
    """Serve Spark's requests for workers until Spark goes away."""
    # The terminal sends Ctrl-C to every process; workers end when the driver says so.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # PySpark itself is installed as a package. Its zip copies come first, and whatever
    # is imported from them is compiled anew.
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    sys.path_importer_cache.clear()
    daemon = importlib.import_module("pyspark.daemon")
    # Everything that a task needs; every worker then shares it.
    importlib.import_module("spark_jobs.task.stage_task")
    importlib.import_module("spark_jobs.keyed.key_task")
    # Arrow loads pandas, if it is there, when it first makes a numpy array of a column.
    np.asarray(pa.array([0]))
    keep_freed_memory()
    leave_lasting_objects()
    vars(daemon)["gc"] = SimpleNamespace(collect=_leave_garbage)
    daemon.manager()


def _leave_garbage() -> None:
    """Stand in for the collection that PySpark's daemon makes after each task."""


if __name__ == "__main__":
    main()
