"""What a driver shows: what was published, and whether it does its work."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tallyweir.sinks.protocol.coordinator import BatchResult
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.identity import BatchKey, Epoch, Sequence, SparkBatchId
from tallyweir.sinks.protocol.measures import Measures, distribution_of
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.votes import BatchTally, EventCounts, PartitionTally
from tallyweir.spark_jobs.batches.batch_report import BatchReport
from tallyweir.spark_jobs.driver.driver_metrics import STALLED_AFTER_S, DriverMetrics

_TP = TopicPartition("orders", 0)
_NEWEST_US = 900_000_000


@dataclass(kw_only=True)
class _Driver:
    """A driver's metrics, with a clock that the test moves."""

    now: float = 1000.0
    metrics: DriverMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = DriverMetrics(
            "p",
            Guarantee.AT_LEAST_ONCE,
            now=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return a sample as Prometheus gets it; None when there is none."""
        return self.metrics.registry.get_sample_value(
            f"tallyweir_{name}", {"pipeline": "p", **labels}
        )

    def lag(self) -> float | None:
        """Return the lag of the one partition."""
        return self.value("source_lag_records", topic="orders", partition="0")

    def not_ready(self) -> list[str]:
        """Name the checks that fail."""
        checks = self.metrics.ready_checks
        return [name for name, check in checks.items() if check() is not None]

    def publish(
        self,
        until: int = 10,
        *,
        dead: dict[str, int] | None = None,
        event_time_max_us: int | None = _NEWEST_US,
        outcome: PublishOutcome = PublishOutcome.COMMITTED,
    ) -> None:
        """Report a batch of ten records."""
        counts = EventCounts(
            read=10, committed=2, duplicate=3, dead=1, late=1, expired=1, filtered=2
        )
        tally = BatchTally(
            partitions={
                _TP: PartitionTally(
                    counts=counts,
                    offset_min=0,
                    offset_max=until - 1,
                    event_time_max_us=event_time_max_us,
                )
            },
            staged={},
            outputs={},
            attempts=(),
            checksum=0,
            measures=Measures(
                counts={"refunds": 2}, distributions={"euros": distribution_of([1, 3])}
            ),
        )
        plan = BatchPlan(
            key=BatchKey(epoch=Epoch(3), spark_batch_id=SparkBatchId(0)),
            ranges=[
                OffsetRange(topic_partition=_TP, from_offset=0, until_offset=until)
            ],
            watermark_us=None,
            after_sequence=Sequence(0),
            clocks={},
            planned_at_us=0,
            topic_ids={},
        )
        self.metrics.note_published(
            BatchReport(
                plan=plan,
                result=BatchResult(outcome=outcome, tally=tally, restagings=0),
                seconds=6.0,
                phases={"plan": 1.0, "stage": 2.0, "publish": 3.0},
            ),
            dead,
        )


@pytest.fixture
def driver() -> _Driver:
    """A driver that reads from offset 0 under epoch 3."""
    driver = _Driver()
    driver.metrics.note_started(Epoch(3), {_TP: 0})
    return driver


def test_what_was_published_is_counted(driver: _Driver) -> None:
    """Every class of the conservation law, and the dead letters by reason."""
    driver.publish(dead={"MALFORMED": 1})
    driver.publish(dead={"MALFORMED": 1})
    found = {
        name: driver.value(f"{name}_total")
        for name in (
            *("rows_read", "rows_committed", "rows_duplicate"),
            *("late_events", "expired_events", "filtered_events"),
        )
    }
    assert {
        "rows_read": 20,
        "rows_committed": 4,
        "rows_duplicate": 6,
        "late_events": 2,
        "expired_events": 2,
        "filtered_events": 4,
    } == found
    assert 2 == driver.value("dead_letters_total", reason="MALFORMED")
    assert 2 == driver.value("batches_total", outcome="committed")
    assert 3 == driver.value("epoch")
    assert 1000 == driver.value("last_commit_timestamp_seconds")


def test_dead_letters_without_readable_reasons_are_counted_all_the_same(
    driver: _Driver,
) -> None:
    """The sum must be right when the database was away after the commit."""
    driver.publish(dead=None)
    assert 1 == driver.value("dead_letters_total", reason="UNKNOWN")


def test_a_lost_answer_is_an_outcome_of_its_own(driver: _Driver) -> None:
    """The batch is committed once and counted once."""
    driver.publish(dead={}, outcome=PublishOutcome.ALREADY_COMMITTED)
    assert 1 == driver.value("batches_total", outcome="already_committed")
    assert 10 == driver.value("rows_read_total")


def test_what_functions_report_is_counted_when_it_is_published(
    driver: _Driver,
) -> None:
    """By the names that they have given."""
    driver.publish()
    driver.publish()
    assert 4 == driver.value("custom_total", name="refunds")
    assert 4 == driver.value("observed_total", name="euros")
    assert 8 == driver.value("observed_sum", name="euros")


def test_phases_are_told_apart(driver: _Driver) -> None:
    """Each has its own histogram."""
    driver.publish(dead={})
    name = "batch_phase_duration_seconds"
    sums = {p: driver.value(f"{name}_sum", phase=p) for p in ("stage", "publish")}
    assert {"stage": 2.0, "publish": 3.0} == sums
    assert 0 == driver.value(f"{name}_bucket", phase="stage", le="1.0")
    assert 1 == driver.value(f"{name}_bucket", phase="stage", le="2.5")


def test_lag_is_from_the_next_offset_to_the_last_stable_one(driver: _Driver) -> None:
    """It is unknown before the topic was looked at, and never below 0."""
    assert driver.lag() is None
    driver.metrics.note_ends({_TP: 25})
    assert 25 == driver.lag()
    driver.publish(until=10, dead={})
    assert 15 == driver.lag()
    driver.publish(until=30, dead={})
    assert 0 == driver.lag()


def test_freshness_grows_with_the_clock_and_never_goes_back_to_older_events(
    driver: _Driver,
) -> None:
    """It is the age of the newest event, at the moment of the scrape."""
    assert driver.value("data_freshness_seconds") is None
    driver.publish(dead={})
    assert 100 == driver.value("data_freshness_seconds")
    driver.now += 5
    driver.publish(dead={}, event_time_max_us=_NEWEST_US - 1_000_000)
    driver.publish(dead={}, event_time_max_us=None)
    assert 105 == driver.value("data_freshness_seconds")


def test_a_driver_is_ready_once_it_reads_and_knows_where_the_topic_ends() -> None:
    """Before, nobody knows whether there is work."""
    driver = _Driver()
    assert ["epoch", "progress"] == driver.not_ready()
    driver.metrics.note_started(Epoch(1), {_TP: 0})
    assert ["progress"] == driver.not_ready()
    driver.metrics.note_ends({_TP: 0})
    assert [] == driver.not_ready()
    driver.metrics.note_ended(failed=False)
    assert ["epoch"] == driver.not_ready()


def test_an_idle_topic_leaves_a_driver_ready(driver: _Driver) -> None:
    """Nothing to do is no failure, however long it lasts."""
    driver.metrics.note_ends({_TP: 10})
    driver.publish(until=10, dead={})
    driver.now += 100 * STALLED_AFTER_S
    assert [] == driver.not_ready()


def test_work_that_nobody_does_makes_a_driver_unready(driver: _Driver) -> None:
    """A batch, or a new start, gives it time again."""
    driver.metrics.note_ends({_TP: 10})
    driver.now += STALLED_AFTER_S
    assert [] == driver.not_ready()
    driver.now += 1
    assert ["progress"] == driver.not_ready()
    driver.publish(until=9, dead={})
    assert [] == driver.not_ready()


def test_a_batch_that_failed_is_counted_as_such(driver: _Driver) -> None:
    """Nothing of it counts as published."""
    driver.metrics.note_ended(failed=True)
    assert 1 == driver.value("batches_total", outcome="failed")
    assert driver.value("rows_read_total") is None
