"""Which rows of a lookup are refused, because events would find two of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.pipeline import AsOf, Enrichment
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.frame.lookup_rows import (
    check_rows,
    copied_columns,
    without_deleted,
)
from tallyweir.spark_jobs.source.event_columns import OFFSET

_AS_OF = AsOf(valid_from="since", valid_until="till")


def _enrichment(as_of: AsOf | None = None) -> Enrichment:
    on = {"site": "code", "line": "number"}
    return Enrichment(table="sites", on=on, select={"p": "name"}, as_of=as_of)


def _check(enrichment: Enrichment, *rows: Sequence[object]) -> pa.Table:
    names = list(copied_columns(enrichment))
    columns = [pa.array(list(column)) for column in zip(*rows, strict=True)]
    return check_rows(pa.table(columns, names=names), enrichment)


def _refusal(enrichment: Enrichment, *rows: Sequence[object]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        _check(enrichment, *rows)
    return caught.value


def _day(day: int) -> datetime:
    return datetime(2024, 5, day, tzinfo=UTC)


def test_a_key_that_is_there_twice_is_named() -> None:
    """All columns of the key count, not each by itself."""
    _check(_enrichment(), ("A", 1, "x"), ("A", 2, "x"), ("B", 1, "x"))
    error = _refusal(_enrichment(), ("A", 1, "x"), ("B", 2, "y"), ("B", 2, "z"))
    assert "LOOKUP_AMBIGUOUS" == error.code
    assert "{'code': 'B', 'number': 2}" in error.saw
    assert "(code, number)" in error.fix


def test_a_key_with_a_null_may_come_again() -> None:
    """It equals nothing, itself included."""
    _check(_enrichment(), ("A", None, "x"), ("A", None, "y"), ("B", 1, "z"))


def test_a_number_that_is_none_is_a_key_like_others() -> None:
    """Spark calls it equal to itself, so two of them would double events."""
    nan = float("nan")
    assert (
        "LOOKUP_AMBIGUOUS"
        == _refusal(_enrichment(), ("A", nan, "x"), ("A", float("nan"), "y")).code
    )


def test_ranges_may_touch_but_not_overlap() -> None:
    """The end of a range is outside of it; null is no end at all."""
    rows = (
        ("A", 1, _day(2), _day(3), "second"),
        ("A", 1, None, _day(2), "first"),
        ("A", 1, _day(4), None, "last"),
        ("B", 1, None, None, "always"),
    )
    _check(_enrichment(_AS_OF), *rows)
    error = _refusal(_enrichment(_AS_OF), *rows, ("A", 1, _day(1), _day(2), "again"))
    assert "LOOKUP_AMBIGUOUS" == error.code
    assert "{'code': 'A', 'number': 1}" in error.saw
    assert "ends at 2024-05-02" in error.saw
    assert "begins at 2024-05-01" in error.saw


@pytest.mark.parametrize(
    "row",
    [
        ("A", 1, _day(3), None, "x"),
        ("A", 1, None, _day(3), "x"),
        ("A", 1, None, None, "x"),
    ],
)
def test_a_range_without_an_end_overlaps_what_lies_beyond(row: tuple[object]) -> None:
    """A null begins before everything and ends after everything."""
    within = ("A", 1, _day(1), _day(5), "y")
    assert "LOOKUP_AMBIGUOUS" == _refusal(_enrichment(_AS_OF), row, within).code


def test_an_empty_range_matches_nothing_and_a_reversed_one_is_refused() -> None:
    """Corrections leave empty ones behind; nobody means one that ends first."""
    whole = ("A", 1, _day(1), _day(9), "x")
    _check(_enrichment(_AS_OF), whole, ("A", 1, _day(4), _day(4), "y"))
    reversed_ = ("A", 1, _day(5), _day(4), "y")
    error = _refusal(_enrichment(_AS_OF), reversed_, whole)
    assert "LOOKUP_RANGE" == error.code
    assert "2024-05-04" in error.saw


def test_days_and_times_without_a_zone_are_read_in_utc() -> None:
    """A day begins at midnight there."""
    rows = _check(
        _enrichment(_AS_OF),
        ("A", 1, date(2024, 5, 1), datetime(2024, 5, 2, 6), "x"),  # noqa: DTZ001
    )
    assert rows.column("tallyweir_valid_from").to_pylist() == [_day(1)]
    assert rows.column("tallyweir_valid_until").to_pylist() == [
        datetime(2024, 5, 2, 6, tzinfo=UTC)
    ]


def test_a_range_of_anything_else_is_refused() -> None:
    """The error names the lookup's own column."""
    error = _refusal(_enrichment(_AS_OF), ("A", 1, 2024, 2025, "x"))
    assert "LOOKUP_TYPE" == error.code
    assert "Column since of the lookup sites is of type int64" in error.saw


def _present(*changes: str | None, partitions: int = 1) -> list[int]:
    """Return the offsets of the changes that give a row."""
    lookup = Enrichment(
        topic="customers",
        fields={"row.id": "bigint"},
        envelope="debezium",
        on={"customer": "id"},
        select={"known": "id"},
    )
    values = [None if one is None else one.encode() for one in changes]
    decoder = load_event_contracts([lookup.reference]).decoder(["op"])
    decoded = decoder.decode(pa.array(values, pa.binary()))
    rows = pa.table({OFFSET: pa.array(range(len(values)), pa.int64())})
    kept = without_deleted(rows, decoded, lookup, partitions=partitions)
    found: list[int] = kept.column(OFFSET).to_pylist()
    return found


def _row(operation: str, number: int = 1) -> str:
    image = "before" if operation == "d" else "after"
    return f'{{"op": "{operation}", "{image}": {{"id": {number}}}}}'


def test_the_newest_change_of_a_row_says_whether_it_is_there() -> None:
    """What is no change gives none; what cannot be read is left to be told."""
    heartbeat, broken = '{"ts_ms": 1}', "{"
    assert [0, 1, 2, 4] == _present(
        *(_row("c"), _row("r"), _row("u"), _row("d"), broken, heartbeat)
    )


def test_a_truncation_takes_away_what_was_before_it() -> None:
    """Where that is not known, nothing is guessed."""
    changes = (_row("c", 1), '{"op": "t"}', _row("c", 2))
    assert [2] == _present(*changes)
    with pytest.raises(ConfigurationError, match="LOOKUP_UNREADABLE"):
        _present(*changes, partitions=2)
