"""How old the committed events of a task are, by what Kafka says of their records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sinks.protocol.ages import BUCKETS_TO_A_POWER
from spark_jobs import event_frame as frame
from spark_jobs.event_classes import ClassifiedEvents, EventClass

_MILLISECOND_US = 1_000.0


def ages_of(events: ClassifiedEvents, planned_at_us: int) -> dict[int, int]:
    """Count the committed events of a task by their age when the batch was planned.

    A record without a time, which Kafka tells by a negative one, is left out.

    Args:
        events: As they were decided upon.
        planned_at_us: By the home's clock.
    """
    column = events.array(frame.TIMESTAMP).cast(pa.int64()).fill_null(-1)
    times_us = np.asarray(column)[events.is_class(EventClass.COMMITTED)]
    times_us = times_us[times_us >= 0]
    ages_ms = (planned_at_us - times_us) / _MILLISECOND_US
    powers = np.log2(np.maximum(ages_ms, 1.0)) * BUCKETS_TO_A_POWER
    counts = np.bincount(np.ceil(powers).astype(np.int64))
    filled = np.flatnonzero(counts)
    return dict(zip(filled.tolist(), counts[filled].tolist(), strict=True))
