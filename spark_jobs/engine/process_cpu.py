"""Measure the CPU time of the driver's processes, as the system counts it."""

from __future__ import annotations

import time

import psutil
from pyspark.sql import SparkSession


class ProcessCpu:
    """Tells the CPU time of the driver and its JVM since the last call.

    It does not count Spark's Python workers: tasks report their own time.

    Args:
        spark: The session; its JVM runs on the driver's machine.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - Spark has no other way to it
        assert jvm is not None, "a driver has a JVM"
        self._jvm = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """Return the CPU seconds since the last call, by process."""
        before, self._before = self._before, self._now()
        return {name: self._before[name] - before[name] for name in before}

    def _now(self) -> dict[str, float]:
        jvm = self._jvm.cpu_times()
        return {"driver": time.process_time(), "jvm": jvm.user + jvm.system}
