"""Numbers become questions as tasks ask them."""

from __future__ import annotations

import numpy as np

from tallyweir.sinks.seen_ids.round_claims import RoundClaims
from tallyweir.sinks.seen_ids.tests.catalog import view_of
from tallyweir.spark_jobs.dedup_bench.ids_driver import (
    EVENT_TIMES,
    TASKS,
    EventTimes,
    ids_of,
    questions_of,
)

_NUMBERS = np.array([5, 9, 2, 7, 5, 11, 3, 2], dtype=np.int64)


def test_each_task_asks_for_its_own_partition_in_order() -> None:
    """Offsets begin where the partition stands, and no event is left out."""
    questions = questions_of(_NUMBERS, starts=[10, 20, 30, 40], bucket_seconds=60)

    asked = [question.candidates for question in questions]
    assert TASKS == len(asked)
    assert [{10, 11}, {20, 21}, {30, 31}, {40, 41}] == [
        set(one.offset.tolist()) for one in asked
    ]
    assert [{place} for place in range(TASKS)] == [
        set(one.place.tolist()) for one in asked
    ]
    assert all(one.is_in_order() for one in asked)
    latest = [int(EVENT_TIMES.of(_NUMBERS)[i : i + 2].max()) for i in (0, 2, 4, 6)]
    assert latest == [question.event_time_max_us for question in questions]


def test_a_repeat_has_the_id_and_the_time_of_what_it_repeats() -> None:
    """So it is a duplicate, and no conflict; the others are new."""
    claims = RoundClaims(view_of())
    survived = [
        int(claims.ask(question.candidates).survives.sum())
        for question in questions_of(_NUMBERS, starts=[0] * TASKS, bucket_seconds=60)
    ]
    assert [2, 2, 1, 1] == survived
    assert len({*map(tuple, ids_of(_NUMBERS).tolist())}) == len({*_NUMBERS.tolist()})


def test_a_bucket_begins_at_a_multiple_of_its_length() -> None:
    """Events of two buckets, a minute apart."""
    numbers = np.array([0, 12_000, 0, 12_000], dtype=np.int64)
    questions = questions_of(numbers, starts=[0] * TASKS, bucket_seconds=60)
    first, second = (int(q.candidates.bucket[0]) for q in questions[:2])
    assert 0 == first % 60
    assert 60 == second - first


def test_events_may_be_given_other_times() -> None:
    """So that they fill the buckets that another pipeline's events belong to."""
    times = EventTimes(begin_us=3_600_000_000, gap_us=30_000_000)
    questions = questions_of(
        np.array([0, 1, 2, 3], dtype=np.int64),
        starts=[0] * TASKS,
        bucket_seconds=60,
        times=times,
    )
    buckets = [int(one.candidates.bucket[0]) for one in questions]
    assert [3_600, 3_600, 3_660, 3_660] == buckets
    assert 3_690_000_000 == questions[3].event_time_max_us
