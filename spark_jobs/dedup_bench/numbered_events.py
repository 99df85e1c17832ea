"""Events that are only a number, from which their ID and their time follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tallyweir.sinks.seen_ids.claim import Candidates
from tallyweir.sinks.seen_ids.fingerprint import fingerprint
from tallyweir.sinks.seen_ids.ordering import I64Array, U64Array
from tallyweir.sinks.seen_ids.part_words import KEY_BYTES

#: Tasks of a batch; each asks for the IDs of one partition.
TASKS = 4

#: Any key will do: the cost of a fingerprint does not depend on it.
_KEY = b"bench".ljust(KEY_BYTES, b".")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """When numbered events happened.

    Attributes:
        begin_us: Time of number 0: 2026-01-01, in the past, because no event may be
            ahead of the machine's clock.
        gap_us: Time from one event to the next. At 200 events a second 10**8 of them
            fit into a horizon of seven days.
    """

    begin_us: int = 1_767_225_600_000_000
    gap_us: int = 5_000

    def of(self, numbers: I64Array) -> I64Array:
        """Return when events happened; a repeat has the time of the original event."""
        return self.begin_us + numbers * self.gap_us


EVENT_TIMES = EventTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question of one task.

    Attributes:
        candidates: The task's rows, in the order in which they must ask.
        event_time_max_us: Time of its newest event.
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
    """Divide a batch among its tasks, in order.

    Args:
        numbers: Numbers of its events, in the order of their offsets.
        starts: The first offset of each task's partition.
        bucket_seconds: How much event time a bucket covers.
        times: When the events happened.
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
        # A repeat copies the event byte for byte, so its payload has the same hash.
        payload_hashes=np.maximum(pairs[:, 0] ^ pairs[:, 1], np.uint64(1)),
    )
    return Question(
        candidates=written.take(written.order()), event_time_max_us=int(times_us.max())
    )
