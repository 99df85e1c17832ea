"""CPU that the driver's processes have spent, as the system counts it."""

from __future__ import annotations

import time

import psutil
from pyspark.sql import SparkSession


class ProcessCpu:
    """Tells what was spent since it was asked last, by the driver and its JVM.

    Of Spark's Python workers nothing: tasks tell of themselves.

    Args:
        spark: The session, whose JVM is beside the driver.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - Spark has no other way to it
        assert jvm is not None, "a driver has a JVM"
        self._jvm = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """Return CPU seconds by process."""
        before, self._before = self._before, self._now()
        return {name: self._before[name] - before[name] for name in before}

    def _now(self) -> dict[str, float]:
        jvm = self._jvm.cpu_times()
        return {"driver": time.process_time(), "jvm": jvm.user + jvm.system}
