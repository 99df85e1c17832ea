"""Events that are nothing but a number, which their ID and their time follow from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sinks.seen_ids.claim import Candidates
from sinks.seen_ids.fingerprint import fingerprint
from sinks.seen_ids.ordering import I64Array, U64Array
from sinks.seen_ids.part_words import KEY_BYTES

#: As many ask for their IDs as tasks of a batch do, each for a partition's share.
TASKS = 4

#: What a fingerprint costs does not depend on the key.
_KEY = b"bench".ljust(KEY_BYTES, b".")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """When numbered events happened.

    Attributes:
        begin_us: Number 0; 2026-01-01, before the clock of whoever runs this, which no
            event may be ahead of.
        gap_us: From one event to the next; at 200 a second 10**8 of them fit into a
            horizon of seven days.
    """

    begin_us: int = 1_767_225_600_000_000
    gap_us: int = 5_000

    def of(self, numbers: I64Array) -> I64Array:
        """Tell when events happened; a repeat has the time of what it repeats."""
        return self.begin_us + numbers * self.gap_us


EVENT_TIMES = EventTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What one task asks for.

    Attributes:
        candidates: In the order in which they may ask.
        event_time_max_us: Of its newest event.
    """

    candidates: Candidates
    event_time_max_us: int


def ids_of(numbers: I64Array) -> U64Array:
    """Fingerprint the IDs of events."""
    return fingerprint([pa.array(numbers)], _KEY)


def questions_of(
    numbers: I64Array,
    *,
    starts: Sequence[int],
    bucket_seconds: int,
    times: EventTimes = EVENT_TIMES,
) -> list[Question]:
    """Share a batch out among its tasks, in order.

    Args:
        numbers: Of its events, in the order of their offsets.
        starts: The offset that each task's partition is read from.
        bucket_seconds: How much event time a bucket covers.
        times: When they happened.
    """
    return [
        _question(share, place, start, bucket_seconds, times)
        for place, (share, start) in enumerate(
            zip(np.array_split(numbers, TASKS), starts, strict=True)
        )
    ]


def _question(
    numbers: I64Array, place: int, start: int, bucket_seconds: int, times: EventTimes
) -> Question:
    pairs = ids_of(numbers)
    times_us = times.of(numbers)
    written = Candidates(
        place=np.full(len(numbers), place, dtype=np.int64),
        offset=np.arange(start, start + len(numbers), dtype=np.int64),
        bucket=times_us // 1_000_000 // bucket_seconds * bucket_seconds,
        hi=np.ascontiguousarray(pairs[:, 0]),
        lo=np.ascontiguousarray(pairs[:, 1]),
        # A repeat is one to the last byte, so its payload has the same hash.
        payload_hashes=np.maximum(pairs[:, 0] ^ pairs[:, 1], np.uint64(1)),
    )
    return Question(
        candidates=written.take(written.order()), event_time_max_us=int(times_us.max())
    )
