"""Observe this driver's Spark executors, and set their number.

PySpark has no call for this, but the JVM's ``SparkContext`` has.
``docs/adr/0009-executors-by-backlog.md`` says why Spark's own dynamic allocation stays
off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

#: The name of the driver among the executors in Spark's store.
_DRIVER = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """The executors at a moment.

    Attributes:
        executors: The number of executors.
        cores: The number of tasks that one executor runs at a time.
        busy_s: The seconds of all tasks since the driver started, on all executors.
    """

    executors: int
    cores: int
    busy_s: float


class ExecutorPool:
    """The executors of one Spark application on a cluster.

    Args:
        spark: The application's session.
    """

    def __init__(self, spark: SparkSession) -> None:
        # Typed as Any, because py4j resolves members when they are called.
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - no public way
        self._context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - as above
        #: The milliseconds of tasks by executor, including executors that have ended.
        self._task_ms: dict[str, int] = {}

    @property
    def cores_at_first(self) -> int:
        """The number of tasks per executor, before the first executor exists."""
        return int(self._context.getConf().get("spark.executor.cores", "1"))

    def look(self) -> PoolState:
        """Return the present state."""
        found = self._executors()
        for executor in found:
            self._task_ms[executor.id()] = executor.totalDuration()
        cores = max((executor.totalCores() for executor in found), default=0)
        return PoolState(
            executors=len(found),
            cores=cores or self.cores_at_first,
            busy_s=sum(self._task_ms.values()) / 1_000,
        )

    def set_total(self, total: int) -> None:
        """Ask the cluster for this many executors, and release those beyond.

        It releases only executors without a task, so call it again until ``look`` shows
        no more than the total. A released executor loses no staged row, because those
        are in Postgres; Spark computes its shuffled rows again.
        """
        scala_map: Any = getattr(self._jvm.scala.collection.immutable, "Map$")
        no_hosts = getattr(scala_map, "MODULE$").empty()
        self._context.requestTotalExecutors(total, 0, no_hosts)
        found = self._executors()
        idle = [one.id() for one in found if one.activeTasks() == 0]
        # Release the newest first: the caches of the others are warmer.
        gone = sorted(idle, key=int, reverse=True)[: max(0, len(found) - total)]
        if gone:
            ids = self._jvm.java.util.ArrayList()
            for executor in gone:
                ids.add(executor)
            as_scala = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(ids)
            # The total is already set, the executors have not failed, and one of them
            # may just have begun a task.
            changes_total = counts_as_failure = kills_tasks = False
            self._context.schedulerBackend().killExecutors(
                as_scala.toSeq(), changes_total, counts_as_failure, kills_tasks
            )

    def _executors(self) -> list[Any]:
        """Return Spark's summary of each live executor."""
        only_alive = True
        alive = self._context.statusStore().executorList(only_alive)
        found = [alive.apply(number) for number in range(alive.size())]
        return [executor for executor in found if executor.id() != _DRIVER]


def open_pool(spark: SparkSession) -> ExecutorPool | None:
    """Return the executors; None if the driver itself runs all tasks."""
    master = spark.sparkContext.master or ""
    if master == "local" or master.startswith("local["):
        return None
    return ExecutorPool(spark)
