"""The ages of a task's committed events, by the timestamps of their Kafka records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tallyweir.sinks.protocol.ages import BUCKETS_TO_A_POWER
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass

_MILLISECONDS = 1e-3


def ages_of(events: ClassifiedEvents, planned_at_us: int) -> dict[int, int]:
    """Count the committed events of a task by their age when the batch was planned.

    Records without a timestamp, which Kafka shows as a negative one, are left out.

    Args:
        events: The task's events, with their final fates.
        planned_at_us: When the batch was planned, by the home's clock.
    """
    column = events.array(named.TIMESTAMP).cast(pa.int64())
    if column.null_count:
        column = column.fill_null(-1)
    times_us = np.asarray(column)
    counted = events.is_class(EventClass.COMMITTED) & (times_us >= 0)
    if not counted.all():
        times_us = times_us[counted]
    # Seven digits are enough to find a bucket; their logarithms take a tenth of the
    # time.
    ages_ms = ((planned_at_us - times_us) * _MILLISECONDS).astype(np.float32)
    np.maximum(ages_ms, np.float32(1), out=ages_ms)
    np.log2(ages_ms, out=ages_ms)
    ages_ms *= np.float32(BUCKETS_TO_A_POWER)
    counts = np.bincount(np.ceil(ages_ms, out=ages_ms).astype(np.int64))
    filled = np.flatnonzero(counts)
    return dict(zip(filled.tolist(), counts[filled].tolist(), strict=True))
