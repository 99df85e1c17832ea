"""Spreads the events of an output over its branches by their positions."""

from __future__ import annotations

import numpy as np

from tallyweir.spark_jobs.task.classified_events import I64Array

#: Odd, near 2**64 over the golden ratio: multiples of it spread evenly over 64 bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: Makes partitions choose differently for the same offset.
_PLACE_STEP = np.uint64(0xC2B2AE3D27D4EB4F)


def spread_evenly(places: I64Array, offsets: I64Array, ways: int) -> I64Array:
    """Choose one of several ways for each event, by its position in Kafka only.

    Offsets may come in steps, for example if each transaction has one event and a
    marker. Multiplication spreads any steps; a remainder of the offset would not.
    """
    mixed = offsets.astype(np.uint64) + places.astype(np.uint64) * _PLACE_STEP
    high = (mixed * _SPREAD) >> np.uint64(32)
    return (high % np.uint64(ways)).astype(np.int64)
