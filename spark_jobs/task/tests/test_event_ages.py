"""A task counts its committed events by how long Kafka has had them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from tallyweir.sinks.protocol.measures import age_quantile_s
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.task_measures import ages_of

_PLANNED = datetime(2026, 3, 1, tzinfo=UTC)
_PLANNED_US = int(_PLANNED.timestamp()) * 1_000_000


def _events(*aged: tuple[float | None, EventClass]) -> ClassifiedEvents:
    times = [
        None if seconds is None else _PLANNED - timedelta(seconds=seconds)
        for seconds, _ in aged
    ]
    column = pa.array(times, pa.timestamp("us", "UTC"))
    table = pa.table({named.TIMESTAMP: column})
    return ClassifiedEvents(
        table=table,
        classes=np.array([kind for _, kind in aged], dtype=np.uint8),
        event_time_us=np.zeros(len(aged), dtype=np.int64),
    )


def test_only_what_is_committed_is_counted() -> None:
    """A record that Kafka gives no time has no age."""
    events = _events(
        (2.0, EventClass.COMMITTED),
        (4.0, EventClass.COMMITTED),
        (90.0, EventClass.DUPLICATE),
        (90.0, EventClass.DEAD),
        (None, EventClass.COMMITTED),
        (_PLANNED.timestamp() + 0.001, EventClass.COMMITTED),
    )
    ages = ages_of(events, _PLANNED_US)
    assert sum(ages.values()) == 2
    assert age_quantile_s(ages, 0.5) == pytest.approx(2.0, rel=0.05)
    assert age_quantile_s(ages, 1.0) == pytest.approx(4.0, rel=0.05)


def test_a_task_without_committed_events_has_no_ages() -> None:
    """Nor has one whose records are from ahead of the clock a negative one."""
    assert ages_of(_events((1.0, EventClass.DEAD)), _PLANNED_US) == {}
    assert ages_of(_events((-5.0, EventClass.COMMITTED)), _PLANNED_US) == {0: 1}
