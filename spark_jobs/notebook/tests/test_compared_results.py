"""A comparison finds what is not equal, and says why as far as the ledger knows."""

from __future__ import annotations

from datetime import UTC, datetime

from tallyweir.sinks.postgres.audit.why.slice_results import (
    Position,
    RecordFate,
    SliceResults,
    TableRows,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.spark_jobs.notebook.dry_publish import Comparison

_KEY = ("kafka_topic", "kafka_partition", "kafka_offset")
_PLACE = TopicPartition("t", 0)
_NOTHING = TableRows(columns=(), rows=(), key=())


def _results(
    *rows: tuple[int, float],
    fates: dict[int, RecordFate] | None = None,
    definition: str = "same",
    until: int = 10,
) -> SliceResults:
    """Results of offsets 0..until in one batch: rows of offset and value."""
    table = TableRows(
        columns=("value", *_KEY),
        rows=tuple((value, "t", 0, offset) for offset, value in rows),
        key=_KEY,
    )
    return SliceResults(
        definition_hash=definition,
        fates={Position("t", 0, n): fate for n, fate in (fates or {}).items()},
        published={_PLACE: ((0, until, 3),)},
        next_offsets={_PLACE: until},
        outside=0,
        tables={"rows": table},
        outbox=_NOTHING,
        counts=_NOTHING,
    )


def _compare(dry: SliceResults, committed: SliceResults | None) -> Comparison:
    return Comparison.of(dry, committed, [Position("t", 0, n) for n in range(3)])


def _windows(results: SliceResults, views: int, *, outside: int = 0) -> SliceResults:
    start, end = (datetime(2024, 5, 1, hour, tzinfo=UTC) for hour in (10, 11))
    rows = TableRows(
        columns=("window_start", "window_end", "page", "views"),
        rows=((start, end, None, views),),
        key=("window_start", "window_end", "page"),
    )
    return SliceResults(
        definition_hash=results.definition_hash,
        fates=results.fates,
        published=results.published,
        next_offsets=results.next_offsets,
        outside=outside,
        tables={"by_hour": rows},
        outbox=_NOTHING,
        counts=_NOTHING,
    )


def test_equal_rows_are_counted_and_not_listed() -> None:
    """Sums of floating point may differ in their last digits."""
    found = _compare(_results((0, 0.3), (1, 2.0)), _results((0, 0.1 + 0.2), (1, 2.0)))
    assert found.summary.loc["rows"].tolist() == [2, 0, 0, 0]
    assert found.rows.empty


def test_a_missing_row_is_explained_by_the_ledger() -> None:
    """By the batch and the reason that the record was put aside for."""
    duplicate = RecordFate(
        outcome="duplicate", why="its ID was seen before", sequence=2
    )
    found = _compare(_results((0, 1.0)), _results(fates={0: duplicate}))
    assert found.summary.loc["rows"].tolist() == [0, 1, 0, 0]
    (why,) = found.rows["why"]
    assert why == "duplicate in batch 2: its ID was seen before"
    assert ["different", "equal", "equal"] == found.records["verdict"].tolist()


def test_a_row_that_somebody_deleted_is_missing_without_a_reason() -> None:
    """The ledger says that it was committed."""
    found = _compare(_results((0, 1.0)), _results())
    (why,) = found.rows["why"]
    assert why == "committed in batch 3, and the row is gone"


def test_what_was_not_read_yet_is_missing_for_that() -> None:
    """The end of a range is not in it."""
    found = _compare(_results((2, 1.0)), _results(until=2))
    (why,) = found.rows["why"]
    assert why == "not read: the pipeline reads t[0] from 2 on next"


def test_an_extra_row_is_explained_by_the_dry_run() -> None:
    """As when a rule was added since."""
    dead = RecordFate(outcome="dead", why="NEW_RULE: not true", sequence=1)
    found = _compare(_results(fates={1: dead}), _results((1, 5.0)))
    assert found.summary.loc["rows"].tolist() == [0, 0, 1, 0]
    (why,) = found.rows["why"]
    assert why == "dry run: dead in batch 1: NEW_RULE: not true"


def test_a_different_row_names_the_columns() -> None:
    """And the change of the pipeline, if there is one."""
    found = _compare(_results((1, 5.0)), _results((1, 6.0), definition="former"))
    assert found.rows["differs"].tolist() == ["value: 5.0 here, 6.0 there"]
    assert found.rows["why"].tolist() == [
        "the pipeline has changed since its last driver"
    ]
    assert "differs from the one that its last driver ran" in found.notes[0]


def test_windows_are_compared_by_their_groups_null_included() -> None:
    """What lies outside of the slice is the reason where there is something."""
    dry = _windows(_results(), 2)
    assert _compare(dry, _windows(_results(), 2)).rows.empty
    found = _compare(dry, _windows(_results(), 3, outside=7))
    assert found.rows["why"].tolist() == [
        "windows hold records that are not in the slice"
    ]
    assert "7 records" in found.notes[0]


def test_a_pipeline_that_has_never_run_lacks_every_row() -> None:
    """And says so once."""
    found = _compare(_results((0, 1.0)), None)
    assert found.rows["why"].tolist() == ["not read: the pipeline has never run"]
    assert found.notes == (
        "No driver of the pipeline has ever started: nothing is committed.",
    )
