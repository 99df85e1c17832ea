"""What Spark says of a job that failed, in the few words that a person needs."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

#: What PySpark has no class for, it lets through as the bare Java exception: that Kafka
#: deleted what a task was to read is one.
SPARK_FAILURES = (PySparkException, Py4JJavaError)


def what_failed(failure: Exception) -> str:
    """Quote what failed; of a stream, its plan would follow."""
    return _words(failure)[0]


def what_failed_and_why(failure: Exception) -> str:
    """Quote what failed and why: a worker names its cause last, Spark its own first."""
    words = _words(failure)
    return " … ".join(dict.fromkeys((words[0], words[-1])))


def _words(failure: Exception) -> list[str]:
    lines = (line.strip() for line in str(failure).splitlines())
    words = [line for line in lines if line and not line.startswith(("at ", "... "))]
    return words or ["no reason given"]
