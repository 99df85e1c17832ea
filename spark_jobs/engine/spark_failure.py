"""Shorten Spark's account of a failed job to the few words that a person needs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from tallyweir.sinks.protocol.errors import RetryableError

#: PySpark raises the bare Java exception for errors that it has no class for, such as
#: records that Kafka deleted before a task read them.
SPARK_FAILURES = (PySparkException, Py4JJavaError)

#: The sockets of a process close a moment before it has ended.
_END_S = 5.0


@contextmanager
def explaining_lost_jvm() -> Iterator[None]:
    """Translate the end of Spark's JVM, a child of this process, into our error.

    Raises:
        RetryableError: ``SPARK_ENDED``. Only a new process gets another JVM.
    """
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if not _jvm_has_ended():
            raise
        raise RetryableError(
            "SPARK_ENDED",
            saw="Spark's JVM has ended, or was killed.",
            why="This process cannot stage without its JVM. A batch that was not "
            "published is given up whole.",
            fix="Start the process again. If the error returns, read Spark's log, "
            "and search the kernel's log for a process killed for lack of memory: "
            "then give the machine or the container more memory, or Spark less with "
            "TALLYWEIR_DRIVER_MEMORY.",
        ) from error


def _jvm_has_ended() -> bool:
    jvm = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - no public way
    if jvm is None:
        return False
    try:
        jvm.wait(_END_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def query_failed(failure: Exception) -> RetryableError:
    """Translate the end of a query by Spark into our error."""
    # A stream's plan follows in the message.
    said = _words(failure)[0]
    return _failed("SPARK_QUERY_FAILED", f"Spark ended the query: {said}")


def job_failed(error: Exception) -> Exception:
    """Turn a failure of a Spark job into our error; return other errors unchanged.

    A killed worker or a lost broker recovers by itself. For other causes, the driver
    gives up after a few tries.
    """
    # One such failure is that Kafka has deleted records of the batch; the next start
    # reports it.
    if not isinstance(error, SPARK_FAILURES):
        return error
    said = what_failed_and_why(error)
    return _failed("SPARK_JOB_FAILED", f"Spark could not stage a batch: {said}")


def _failed(code: str, saw: str) -> RetryableError:
    return RetryableError(
        code,
        saw=saw,
        why="The driver gave up the whole batch; nothing of it was published.",
        fix="Nothing to do if it passes; Spark's log has the details.",
    )


def what_failed_and_why(failure: Exception) -> str:
    """Quote what failed and why: Spark's words come first, a worker's cause last."""
    words = _words(failure)
    return " … ".join(dict.fromkeys((words[0], words[-1])))


def _words(failure: Exception) -> list[str]:
    lines = (line.strip() for line in str(failure).splitlines())
    words = [line for line in lines if line and not line.startswith(("at ", "... "))]
    return words or ["no reason given"]
