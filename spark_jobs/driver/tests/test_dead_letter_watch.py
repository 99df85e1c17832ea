"""The watch judges the newest records, as few batches of them as will do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.pipeline import DeadLetterLimit
from tallyweir.spark_jobs.driver.dead_letter_watch import DeadLetterWatch


def _watch(share: float, records: int) -> DeadLetterWatch:
    return DeadLetterWatch("p", DeadLetterLimit(share=share, records=records))


def test_nothing_is_judged_before_enough_was_read() -> None:
    """Three dead of three may be chance."""
    watch = _watch(0.5, 100)
    assert watch.note_batch(read=99, dead=99) is None
    told = watch.note_batch(read=1, dead=0)
    assert told is not None
    assert "99 of the last 100" in told


def test_the_share_itself_is_allowed() -> None:
    """It is the most that may be, not the least that may not."""
    watch = _watch(0.05, 100)
    assert watch.note_batch(read=100, dead=5) is None
    assert watch.note_batch(read=100, dead=6) is not None


def test_good_records_of_long_ago_make_up_for_nothing() -> None:
    """A pipeline that read a billion well stops as soon as a new one does."""
    watch = _watch(0.1, 1_000)
    for _ in range(1_000):
        assert watch.note_batch(read=1_000_000, dead=0) is None
    assert watch.note_batch(read=1_000, dead=101) is not None


def test_a_share_of_zero_allows_none() -> None:
    """One dead letter is enough, once the records are there."""
    watch = _watch(0.0, 1)
    assert watch.note_batch(read=10, dead=0) is None
    assert watch.note_batch(read=1, dead=1) is not None


def test_without_a_limit_everything_may_die() -> None:
    """As it was before there could be one."""
    watch = DeadLetterWatch("p", None)
    assert watch.note_batch(read=10_000, dead=10_000) is None


_batches = st.lists(
    st.integers(0, 50).flatmap(
        lambda read: st.tuples(st.just(read), st.integers(0, read))
    ),
    max_size=40,
)


@given(_batches, st.integers(1, 200), st.floats(0, 0.99))
def test_it_judges_as_whoever_adds_all_up_anew(
    batches: list[tuple[int, int]], records: int, share: float
) -> None:
    """Its sums are those of the fewest newest batches that hold enough."""
    watch = _watch(share, records)
    for end in range(1, len(batches) + 1):
        tripped = watch.note_batch(read=batches[end - 1][0], dead=batches[end - 1][1])
        read = dead = 0
        for batch_read, batch_dead in reversed(batches[:end]):
            read += batch_read
            dead += batch_dead
            if read >= records:
                break
        assert (tripped is not None) == (read >= records and dead > share * read)
