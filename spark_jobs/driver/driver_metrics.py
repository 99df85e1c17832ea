"""The metrics of a driver for Prometheus; docs/metrics.md has the formulas.

Counters move only after a batch is published, by what it published. So they never show
anything that a crash would take back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tallyweir.sinks.metrics_endpoint import Check
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.measures import Measures
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.spark_jobs.batches.batch_report import BatchReport

#: A driver with waiting records and no batch for this long is not ready. It is longer
#: than the largest batch takes on a slow machine.
STALLED_AFTER_S = 600.0

#: In seconds: a phase of a small batch takes 10 ms, of the largest several minutes.
_PHASE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

#: The reason of dead letters while the home database does not answer.
_NOT_READ = "UNKNOWN"
_FAILED = "failed"


class DriverMetrics:
    """The metrics of one driver process, through all of its claims.

    The driver's threads write them, and the endpoint's threads read them.

    Args:
        pipeline: The pipeline's name, a label of every metric.
        guarantee: How often an event may be among the results.
        now: The wall clock, in seconds since 1970.
        monotonic: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        pipeline: str,
        guarantee: Guarantee,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._now = now
        self._monotonic = monotonic
        self._is_running = False
        self._moved_at = monotonic()
        self._event_time_max_us: int | None = None
        self._next_offsets: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._counts = {
            "read": self._counter("rows_read", "Records that arrived from Kafka."),
            "committed": self._counter(
                "rows_committed", "Events that at least one output took."
            ),
            "duplicate": self._counter(
                "rows_duplicate", "Second copies of an event, dropped and listed."
            ),
            "late": self._counter(
                "late_events", "Events that were too late for every output."
            ),
            "expired": self._counter(
                "expired_events", "Events older than the horizon of seen IDs."
            ),
            "filtered": self._counter(
                "filtered_events", "Events that the pipeline's conditions left out."
            ),
        }
        self._dead = self._counter("dead_letters", "Dead letters.", "reason")
        self._batches = self._counter(
            "batches", "Batches, by how they ended.", "outcome"
        )
        self._phases = Histogram(
            "tallyweir_batch_phase_duration_seconds",
            "Time that a published batch took in each phase, repeats included.",
            ["pipeline", "phase"],
            buckets=_PHASE_BUCKETS,
            registry=self.registry,
        )
        self._add_custom_metrics()
        self._lag = self._gauge(
            "source_lag_records",
            "Offsets from the next one to read to the last stable one.",
            "topic",
            "partition",
        )
        self._freshness = self._gauge(
            "data_freshness_seconds",
            "Now less the newest event time that this process has published.",
        )
        self._last_commit = self._gauge(
            "last_commit_timestamp_seconds",
            "When this process has published a batch last, since 1970.",
        )
        self._epoch = self._gauge("epoch", "The epoch that this process has claimed.")
        info = self._gauge("pipeline_info", "What the pipeline promises.", "guarantee")
        info.labels(pipeline, guarantee.value).set(1)

    @property
    def ready_checks(self) -> Mapping[str, Check]:
        """The checks that all pass while the driver does its work."""
        return {"epoch": self._check_epoch, "progress": self._check_progress}

    def note_started(
        self, epoch: Epoch, next_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Note that a claim has begun to read."""
        self._epoch.labels(self._pipeline).set(epoch)
        self._next_offsets = dict(next_offsets)
        self._moved_at = self._monotonic()
        self._is_running = True
        self._show_lag()

    def note_ended(self, *, failed: bool) -> None:
        """Note that a claim has stopped reading, and whether a batch failed."""
        self._is_running = False
        if failed:
            self._batches.labels(self._pipeline, _FAILED).inc()

    def note_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note the offsets up to which the topics can be read."""
        self._ends = dict(ends)
        self._show_lag()

    def note_published(
        self, report: BatchReport, dead: Mapping[str, int] | None
    ) -> None:
        """Count a batch that is in the home database.

        Args:
            report: The batch's report.
            dead: The batch's dead letters by reason; None if they could not be read.
        """
        counts = report.result.tally.counts
        for name, counter in self._counts.items():
            counter.labels(self._pipeline).inc(getattr(counts, name))
        for reason, letters in (
            {_NOT_READ: counts.dead} if dead is None else dead
        ).items():
            self._dead.labels(self._pipeline, reason).inc(letters)
        self._batches.labels(self._pipeline, report.result.outcome.value).inc()
        self._add_custom(report.result.tally.measures)
        for phase, seconds in report.phases.items():
            self._phases.labels(self._pipeline, phase).observe(seconds)
        self._last_commit.labels(self._pipeline).set(self._now())
        self._moved_at = self._monotonic()
        self._next_offsets |= {
            covered.topic_partition: covered.until_offset
            for covered in report.plan.ranges
        }
        self._show_lag()
        self._show_freshness(report)

    def _add_custom_metrics(self) -> None:
        self._custom = self._counter(
            "custom", "Counters of the pipeline's own functions.", "name"
        )
        self._observed = self._counter(
            "observed", "Values that the pipeline's own functions observed.", "name"
        )
        self._observed_sum = self._gauge(
            "observed_sum", "The sum of those values.", "name"
        )

    def _add_custom(self, measures: Measures) -> None:
        for name, amount in measures.counts.items():
            self._custom.labels(self._pipeline, name).inc(amount)
        for name, one in measures.distributions.items():
            self._observed.labels(self._pipeline, name).inc(one.count)
            self._observed_sum.labels(self._pipeline, name).inc(one.total)

    def _show_lag(self) -> None:
        for where, end in self._ends.items():
            behind = max(0, end - self._next_offsets.get(where, 0))
            labels = (self._pipeline, where.topic, str(where.partition))
            self._lag.labels(*labels).set(behind)

    def _show_freshness(self, report: BatchReport) -> None:
        times = [
            tally.event_time_max_us
            for tally in report.result.tally.partitions.values()
            if tally.event_time_max_us is not None
        ]
        if not times:
            return
        known = self._event_time_max_us
        newest_us = max(times) if known is None else max(known, *times)
        self._event_time_max_us = newest_us
        self._freshness.labels(self._pipeline).set_function(
            lambda: self._now() - newest_us / 1_000_000
        )

    def _check_epoch(self) -> str | None:
        return None if self._is_running else "no epoch is claimed and read under"

    def _check_progress(self) -> str | None:
        """Say what is wrong, or None; without waiting records no commit is needed."""
        if not self._ends:
            return "the topic was not looked at yet"
        behind = sum(
            max(0, end - self._next_offsets.get(where, 0))
            for where, end in self._ends.items()
        )
        silence_s = self._monotonic() - self._moved_at
        if behind and silence_s > STALLED_AFTER_S:
            return f"{behind} records wait, and no batch for {silence_s:.0f} s"
        return None

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(
            f"tallyweir_{name}", text, ["pipeline", *labels], registry=self.registry
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(
            f"tallyweir_{name}", text, ["pipeline", *labels], registry=self.registry
        )
