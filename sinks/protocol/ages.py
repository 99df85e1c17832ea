"""How old committed events are: counts by eighths of powers of two, which add up.

A task counts its events by their age when the batch was planned. Until the COMMIT, all
events of the batch age by the same seconds. Adding the same seconds to each age does
not increase its relative error, so results are at most a tenth off, however long a
batch takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

#: Buckets to a power of two. Bucket 0 is a millisecond and less; bucket ``n`` is above
#: ``2 ** ((n - 1) / 8)`` and up to ``2 ** (n / 8)`` milliseconds.
BUCKETS_TO_A_POWER = 8
_LEAST_S = 0.001


def middle_s(bucket: int) -> float:
    """Return the seconds in the middle of a bucket."""
    return _LEAST_S * math.exp2((max(bucket, 1) - 0.5) / BUCKETS_TO_A_POWER)


def bucket_of(seconds: float) -> int:
    """Return the bucket of an age; the least one if the event is ahead of the clock."""
    powers = math.log2(max(seconds / _LEAST_S, 1.0))
    return math.ceil(powers * BUCKETS_TO_A_POWER)


def grown(ages: Mapping[int, int], seconds: float) -> dict[int, int]:
    """Return the ages that all events have some seconds later."""
    later: dict[int, int] = {}
    for bucket, events in ages.items():
        at = bucket_of(middle_s(bucket) + seconds)
        later[at] = later.get(at, 0) + events
    return later


def quantile_s(ages: Mapping[int, int], share: float) -> float | None:
    """Return the age that a share of the events do not exceed; None without events."""
    wanted = share * sum(ages.values())
    seen = 0
    for bucket, events in sorted(ages.items()):
        seen += events
        if events and seen >= wanted:
            return middle_s(bucket)
    return None
