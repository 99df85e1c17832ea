"""A value is compared as its column's type, and each difference is told once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tallyweir.schemas.pipeline.document.yaml_tree import YamlList, read_tree
from tallyweir.sinks.postgres.audit.why.slice_results import (
    Position,
    RecordFate,
    SliceResults,
    TableRows,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.spark_jobs.check.case_result import find_differences
from tallyweir.spark_jobs.check.check_file import Case, ExpectedRow, GivenRecord

_NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def _differences(
    directory: Path, expected: str, *found: Mapping[str, Any]
) -> list[str]:
    """Compare rows of the table ``t``, of which the expected ones are YAML."""
    file = directory / "rows.yaml"
    file.write_text(f"rows:\n{expected}", "utf-8")
    rows = read_tree(file)[0]["rows"]
    assert isinstance(rows, YamlList)
    columns = tuple(found[0]) if found else ()
    table = TableRows(
        columns=columns, rows=tuple(tuple(row.values()) for row in found), key=()
    )
    case = Case(
        name="case",
        line=1,
        records=(),
        lookups={},
        rows={
            "t": tuple(
                ExpectedRow(line=number, values=row)  # type: ignore[arg-type]
                for number, row in enumerate(rows, 2)
            )
        },
    )
    return list(find_differences(case, _results({}, {"t": table})))


def _results(
    fates: Mapping[Position, RecordFate], tables: Mapping[str, TableRows]
) -> SliceResults:
    empty = TableRows(columns=(), rows=(), key=())
    return SliceResults(
        definition_hash="",
        fates=fates,
        published={TopicPartition("orders", 0): ((0, 10, 1),)},
        next_offsets={},
        outside=0,
        tables=tables,
        outbox=empty,
        counts=empty,
    )


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("10.5", Decimal("10.50")),
        ("10", 10),
        ("0.1", 0.1),
        ("null", None),
        ("text", "text"),
        ('"10"', "10"),
        ("true", True),
        ("2024-05-01T14:00:00+02:00", _NOON),
        ("2024-05-01", dt.date(2024, 5, 1)),
        ("\\x00ff", b"\x00\xff"),
        ("{a: [1.50, null]}", {"a": [1.5, None]}),
        ("[a, b]", ["a", "b"]),
        ("'{\"a\": 1}'", {"a": 1}),
    ],
)
def test_a_value_that_is_the_one_found_is_no_difference(
    tmp_path: Path, written: str, found: object
) -> None:
    """Also where it is spelt otherwise; a value of the type beside it is one."""
    assert [] == _differences(tmp_path, f"- {{v: {written}}}", {"v": found})
    assert [] != _differences(tmp_path, "- {v: other}", {"v": found})


@pytest.mark.parametrize(
    ("written", "found"),
    [("10.51", Decimal("10.50")), ("null", 0), ("0", None), ('""', None), ("1", True)],
)
def test_another_value_is_a_difference(
    tmp_path: Path, written: str, found: object
) -> None:
    """Null is nothing else, and no number is true."""
    assert [] != _differences(tmp_path, f"- {{v: {written}}}", {"v": found})


def test_rows_are_paired_in_any_order_and_the_rest_side_by_side(
    tmp_path: Path,
) -> None:
    """A row that resembles none is missing; one that nobody expects is told."""
    found = [
        {"id": "a", "n": 1, "kafka_offset": 0},
        {"id": "b", "n": 2, "kafka_offset": 1},
        {"id": "c", "n": 3, "kafka_offset": 2},
    ]
    assert [
        "t: not the row of line 3: n: expected 9, found 1",
        "t: no row for line 4: id: z, n: 8",
        "t: not expected: id: c, n: 3",
    ] == _differences(
        tmp_path, "- {id: b, n: 2}\n- {id: a, n: 9}\n- {id: z, n: 8}", *found
    )


def test_a_column_that_is_not_there_is_a_difference(tmp_path: Path) -> None:
    """A misspelt name would otherwise compare nothing."""
    assert [
        "t: not the row of line 2: idd: expected a, found no such column"
    ] == _differences(tmp_path, "- {id: a, idd: a}", {"id": "a"})


def test_each_record_must_fare_as_the_case_says() -> None:
    """A dead letter's reason counts where the case names one."""
    dead = RecordFate(outcome="dead", why="OUT_OF_RANGE: Field amount.")
    fates = {Position("orders", 0, offset): dead for offset in (1, 2, 3)}
    records = tuple(
        GivenRecord(
            line=10 + number,
            topic="orders",
            partition=0,
            timestamp=_NOON,
            key=None,
            value=b"",
            headers={},
            outcome=outcome,
            reason=reason,
        )
        for number, (outcome, reason) in enumerate(
            [
                ("committed", None),
                ("dead", None),
                ("dead", "OUT_OF_RANGE"),
                ("dead", "TOMBSTONE"),
                ("duplicate", None),
            ]
        )
    )
    case = Case(name="case", line=1, records=records, lookups={}, rows={})
    found = "found dead (OUT_OF_RANGE: Field amount.)"
    assert [
        f"record 4 (line 13): expected dead TOMBSTONE, {found}",
        "record 5 (line 14): expected duplicate, found committed",
    ] == list(find_differences(case, _results(fates, {})))
