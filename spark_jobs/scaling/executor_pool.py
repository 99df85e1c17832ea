"""Spark's executors of this driver: how many there are, how busy, and how many to be.

PySpark has no call for any of it; the JVM's ``SparkContext`` has. Why Spark's own
dynamic allocation stays off is told in ``docs/adr/0009-executors-by-backlog.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

#: How Spark's store names the driver among its executors.
_DRIVER = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """Executors at a moment.

    Attributes:
        executors: How many are there.
        cores: Tasks that one runs at a time.
        busy_s: Seconds that tasks have taken since the driver started, on all of them.
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
        # Typed as nothing: py4j finds what is there when it is called.
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - no public way
        self._context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - as above
        #: Milliseconds of tasks by executor, of those that have gone as well.
        self._task_ms: dict[str, int] = {}

    @property
    def cores_at_first(self) -> int:
        """Tasks that an executor is to run at a time, before there is one."""
        return int(self._context.getConf().get("spark.executor.cores", "1"))

    def look(self) -> PoolState:
        """Return what there is now."""
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
        """Ask the cluster for so many executors, and let those beyond go.

        Only executors without a task go: to be called again until ``look`` sees no
        more than the total. One that goes takes no staged row with it, for those are
        in Postgres; what it had shuffled Spark makes again.
        """
        scala_map: Any = getattr(self._jvm.scala.collection.immutable, "Map$")
        no_hosts = getattr(scala_map, "MODULE$").empty()
        self._context.requestTotalExecutors(total, 0, no_hosts)
        found = self._executors()
        idle = [one.id() for one in found if one.activeTasks() == 0]
        # The newest go first: the caches of the others are warmer.
        gone = sorted(idle, key=int, reverse=True)[: max(0, len(found) - total)]
        if gone:
            ids = self._jvm.java.util.ArrayList()
            for executor in gone:
                ids.add(executor)
            as_scala = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(ids)
            # It is set already, they have done nothing wrong, and may just have begun.
            changes_total = counts_as_failure = kills_tasks = False
            self._context.schedulerBackend().killExecutors(
                as_scala.toSeq(), changes_total, counts_as_failure, kills_tasks
            )

    def _executors(self) -> list[Any]:
        """Return Spark's summary of each executor that is alive."""
        only_alive = True
        alive = self._context.statusStore().executorList(only_alive)
        found = [alive.apply(number) for number in range(alive.size())]
        return [executor for executor in found if executor.id() != _DRIVER]


def open_pool(spark: SparkSession) -> ExecutorPool | None:
    """Return the executors; None where the driver itself runs all tasks."""
    master = spark.sparkContext.master or ""
    if master == "local" or master.startswith("local["):
        return None
    return ExecutorPool(spark)
