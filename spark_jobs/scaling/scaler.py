"""Scale a driver's pipeline: every few seconds observe, decide, record and act.

An error here does not stop the pipeline: it goes on at its present size, and the next
observation tries again.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from structlog.typing import FilteringBoundLogger

from tallyweir.sinks.postgres.ledger.scaling_record import (
    ScalingRecord,
    read_free_connections,
)
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.scaling.bounds import Bounds
from tallyweir.sinks.scaling.decision import (
    LOWER_PAUSE_S,
    Limits,
    ScalingDecision,
    Standing,
    decide,
)
from tallyweir.sinks.scaling.load import (
    LOAD_WINDOW_S,
    Observation,
    hot_key_seconds,
    step_seconds,
)
from tallyweir.spark_jobs.batches.batch_report import BatchReport
from tallyweir.spark_jobs.batches.prepared_pipeline import PreparedPipeline
from tallyweir.spark_jobs.scaling.executor_pool import (
    ExecutorPool,
    PoolState,
    open_pool,
)
from tallyweir.spark_jobs.source.kafka_source import TASK_RECORDS_MAX
from tallyweir.spark_jobs.tables.layout_builder import SHARDS

#: A batch with this share of the offsets that it may read counts as full, because Spark
#: divides the offsets among the partitions and rounds.
_FULL = 0.9
#: Seconds between two counts of the databases' connections.
_CONNECTIONS_LOOK_S = 60.0
#: The most sessions that the driver itself has in a database.
_DRIVER_SESSIONS = 8
#: The state of a driver that runs all tasks itself.
_NO_POOL = PoolState(executors=0, cores=1, busy_s=0.0)


class Scaler:
    """Scales one driver process, through all of its claims.

    Args:
        record: Holds the bounds, and takes the decisions.
        dsns: The connection strings of the pipeline's databases.
        pool: Spark's executors; None if the driver itself runs all tasks.
        batch_offsets: The most offsets that a batch reads until scaling changes it.
        shuffles: Whether a batch also has tasks that do not read a partition.
        keyed: The tables of outputs whose functions get a key's events in order.
        log: The driver's log.
        clock: Returns monotonic seconds.
    """

    def __init__(  # noqa: PLR0913 - each is a part of what it steers
        self,
        record: ScalingRecord,
        *,
        dsns: Mapping[str, str],
        pool: ExecutorPool | None,
        batch_offsets: int,
        shuffles: bool,
        keyed: Collection[str],
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._record = record
        self._dsns = dsns
        self._pool = pool
        self._shuffles = shuffles
        self._keyed = keyed
        self._log = log
        self._clock = clock
        #: Keeps its value while scaling does not change it.
        self.batch_offsets = batch_offsets
        self._standing: Standing | None = None
        self._asked_for: int | None = None
        self._because: str | None = None
        self._seen: list[Observation] = []
        self._claim: EpochClaim | None = None
        self._published: dict[TopicPartition, int] = {}
        self._full_batches_s: list[float] = []
        self._steps_s = self._hot_key_s = 0.0
        self._connections: int | None = None
        self._connections_at_s = -math.inf
        self._is_failing = False
        self._new_query = threading.Event()
        # An observation of the previous claim may still wait for a server.
        self._looking = threading.Lock()
        self._noting = threading.Lock()

    def start(self) -> None:
        """Resume at the size of the pipeline's last driver, before the first claim.

        Raises:
            RetryableError: The home database is unreachable.
        """
        bounds, last = self._record.read_bounds(), self._record.read_last()
        if bounds.batch_offsets is not None:
            self.batch_offsets = bounds.batch_offsets.clamp(
                last.batch_offsets or self.batch_offsets
            )
        if bounds.executors is not None and self._pool is not None:
            executors = bounds.executors.clamp(last.executors or 0)
            self._standing = self._stood(bounds, executors=executors)
            self._ask_for(executors)

    @property
    def wants_new_query(self) -> bool:
        """Whether the query must end after the current batch, to change its size."""
        return self._new_query.is_set()

    def begin(self, claim: EpochClaim, starts: Mapping[TopicPartition, int]) -> int:
        """Note a new claim.

        Returns:
            The most offsets that a batch of its query reads.
        """
        with self._looking, self._noting:
            self._new_query.clear()
            self._claim = claim
            self._published = dict(starts)
            self._full_batches_s.clear()
            return self.batch_offsets

    def note_published(self, report: BatchReport) -> None:
        """Note a published batch."""
        ranges = report.plan.ranges
        measures = report.result.tally.measures
        with self._noting:
            self._steps_s += step_seconds(measures)
            self._hot_key_s += hot_key_seconds(measures, self._keyed)
            self._published |= {one.topic_partition: one.until_offset for one in ranges}
            if sum(one.length for one in ranges) >= _FULL * self.batch_offsets:
                self._full_batches_s.append(report.seconds)

    def look(self, ends: Mapping[TopicPartition, int]) -> None:
        """Observe, decide and act.

        Args:
            ends: The present end of each partition.
        """
        with self._looking:
            try:
                self._look(ends)
            # A defect in here must not end the thread that watches the topics, so
            # catch everything.
            except Exception as error:  # noqa: BLE001 - as said above
                if not self._is_failing:
                    self._log.warning("not scaled", saw=_first_line(error))
                self._is_failing = True
            else:
                self._is_failing = False

    def _look(self, ends: Mapping[TopicPartition, int]) -> None:
        claim = self._claim
        assert claim is not None, "a claim has begun"
        bounds = self._record.read_bounds()
        if self._pool is None:
            bounds = replace(bounds, executors=None)
        pool = _NO_POOL if self._pool is None else self._pool.look()
        now = self._observe(ends, pool)
        if bounds == Bounds():
            self._standing = None
            return
        former = self._stood(bounds, executors=now.executors)
        limits = self._limits(bounds, len(ends), claim, now)
        decision = decide(bounds, limits, self._seen, former)
        if decision.standing != former or decision.because != self._because:
            self._record.record(claim, decision)
            self._tell(decision)
        # Record the decision first, because an action without a record could not be
        # explained.
        self._because = decision.because
        self._standing = decision.standing
        self._act(decision.standing, now)

    def _observe(
        self, ends: Mapping[TopicPartition, int], pool: PoolState
    ) -> Observation:
        with self._noting:
            published = {place: self._published.get(place, 0) for place in ends}
            full, self._full_batches_s = self._full_batches_s, []
            steps_s, hot_key_s = self._steps_s, self._hot_key_s
        now = Observation(
            at_s=self._clock(),
            arrived=sum(ends.values()),
            published=sum(published.values()),
            busy_s=pool.busy_s,
            executors=pool.executors,
            cores=pool.cores,
            full_batches_s=tuple(full),
            steps_s=steps_s,
            hot_key_s=hot_key_s,
        )
        oldest_s = now.at_s - LOWER_PAUSE_S - LOAD_WINDOW_S
        self._seen = [one for one in self._seen if one.at_s >= oldest_s] + [now]
        return now

    def _stood(self, bounds: Bounds, *, executors: int) -> Standing:
        """Return the present values of what is scaled.

        Args:
            bounds: The operator's bounds.
            executors: The number of executors if scaling has not set it so far.
        """
        now_s = self._clock()
        standing = self._standing or Standing(
            executors=None,
            batch_offsets=None,
            executors_changed_at_s=now_s,
            batch_changed_at_s=now_s,
        )
        if bounds.executors is None:
            standing = replace(standing, executors=None)
        elif standing.executors is None:
            standing = replace(standing, executors=executors)
        if bounds.batch_offsets is None:
            return replace(standing, batch_offsets=None)
        return replace(standing, batch_offsets=self.batch_offsets)

    def _limits(
        self, bounds: Bounds, partitions: int, claim: EpochClaim, now: Observation
    ) -> Limits:
        if (
            bounds.executors is not None
            and now.at_s - self._connections_at_s >= _CONNECTIONS_LOOK_S
        ):
            free = read_free_connections(self._dsns, claim)
            self._connections = max(0, free - _DRIVER_SESSIONS)
            self._connections_at_s = now.at_s
        tasks = tasks_max(partitions, self.batch_offsets)
        return Limits(
            tasks=max(tasks, SHARDS) if self._shuffles else tasks,
            connections=self._connections,
        )

    def _tell(self, decision: ScalingDecision) -> None:
        standing = decision.standing
        self._log.info(
            "scaling" if standing == decision.former else "scaled",
            executors=standing.executors,
            batch_offsets=standing.batch_offsets,
            because=decision.because.value,
            reason=decision.reason,
        )

    def _act(self, standing: Standing, now: Observation) -> None:
        if standing.executors is not None and (
            standing.executors != self._asked_for or standing.executors != now.executors
        ):
            self._ask_for(standing.executors)
        if standing.batch_offsets not in (None, self.batch_offsets):
            assert standing.batch_offsets is not None
            self.batch_offsets = standing.batch_offsets
            self._new_query.set()

    def _ask_for(self, executors: int) -> None:
        assert self._pool is not None, "executors are steered"
        self._pool.set_total(executors)
        self._asked_for = executors


def open_scaler(pipeline: PreparedPipeline, log: FilteringBoundLogger) -> Scaler:
    """Return the scaler of a pipeline that is ready to run; the caller starts it."""
    settings = pipeline.settings
    return Scaler(
        ScalingRecord(settings.home_dsn, pipeline.name),
        dsns=pipeline.dsns,
        pool=open_pool(pipeline.spark),
        batch_offsets=settings.batch_offsets_max,
        shuffles=pipeline.shuffles,
        keyed=[output.table for output in pipeline.layout.keyed],
        log=log,
    )


def tasks_max(partitions: int, batch_offsets: int) -> int:
    """Return how many tasks read a full batch, spread evenly over the partitions."""
    of_each = math.ceil(batch_offsets / max(1, partitions))
    return partitions * math.ceil(of_each / TASK_RECORDS_MAX)


def _first_line(error: Exception) -> str:
    if isinstance(error, TallyweirError):
        return f"{error.code}: {error.saw}"
    told = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {told}"
