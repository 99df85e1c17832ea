"""Compares what a case has made with what it expects, and says how they differ."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from tallyweir.schemas.pipeline.document.yaml_tree import YamlScalar, YamlValue
from tallyweir.sinks.postgres.audit.why.slice_results import SliceResults, TableRows
from tallyweir.spark_jobs.check.case_run import positions
from tallyweir.spark_jobs.check.check_file import Case, ExpectedRow, as_json

_Row = Mapping[str, Any]
_LEDGER_COLUMNS = ("kafka_topic", "kafka_partition", "kafka_offset")


def find_differences(case: Case, results: SliceResults) -> Iterator[str]:
    """Yield a line for each difference; none if the case holds."""
    for number, (record, at) in enumerate(
        zip(case.records, positions(case), strict=True), 1
    ):
        fate = results.fate(at)
        reason = fate.why.partition(":")[0] if fate.outcome == "dead" else None
        if (record.outcome, record.reason or reason) != (fate.outcome, reason):
            expected = " ".join(filter(None, (record.outcome, record.reason)))
            why = f" ({fate.why})" if fate.why else ""
            yield (
                f"record {number} (line {record.line}): expected {expected}, "
                f"found {fate.outcome}{why}"
            )
    for name, expected_rows in case.rows.items():
        yield from _compare_rows(name, expected_rows, _rows_of(name, results))


def _rows_of(name: str, results: SliceResults) -> list[_Row]:
    """Return the rows of a table, or the messages of a topic."""
    table = results.tables.get(name)
    if table is not None:
        return list(_named(table))
    return [
        {
            **message,
            "key": message["key"].decode(),
            "value": json.loads(message["value"], parse_float=Decimal),
        }
        for message in _named(results.outbox)
        if message["topic"] == name
    ]


def _named(rows: TableRows) -> Iterator[_Row]:
    for row in rows.rows:
        yield dict(zip(rows.columns, row, strict=True))


def _compare_rows(
    name: str, expected: Sequence[ExpectedRow], found: list[_Row]
) -> Iterator[str]:
    """Pair equal rows, whatever their order; show the rest side by side."""
    missing = []
    for row in expected:
        equal = next((one for one in found if not _unlike(row, one)), None)
        if equal is None:
            missing.append(row)
        else:
            found.remove(equal)
    for row in missing:
        # Show the most similar row of those that were not expected.
        nearest = min(found, key=lambda one: len(_unlike(row, one)), default=None)
        if nearest is None or len(_unlike(row, nearest)) == len(row.values):
            yield f"{name}: no row for line {row.line}: {_expected(row.values)}"
            continue
        found.remove(nearest)
        yield f"{name}: not the row of line {row.line}: " + "; ".join(
            f"{column}: expected {_written(row.values[column])}, found "
            f"{_shown(nearest[column]) if column in nearest else 'no such column'}"
            for column in _unlike(row, nearest)
        )
    for one in found:
        yield f"{name}: not expected: {_told(one)}"


def _unlike(row: ExpectedRow, found: _Row) -> list[str]:
    return [
        column
        for column, value in row.values.items()
        if column not in found or not _is(value, found[column])
    ]


def _is(expected: YamlValue, found: object) -> bool:
    """Tell whether a value is the one that is written in the file."""
    if isinstance(expected, YamlScalar) and (expected.kind == "null" or found is None):
        return expected.kind == "null" and found is None
    try:
        if isinstance(found, dict | list) or not isinstance(expected, YamlScalar):
            return _loaded(_written(expected)) == _loaded(_shown(found))
        for kind, read in _READERS.items():
            if isinstance(found, kind):
                return read(expected.text) == found
    except (ValueError, InvalidOperation, TypeError):
        return False
    return expected.text == str(found)


def _loaded(text: str) -> object:
    return json.loads(text, parse_float=Decimal)


#: How a text reads as the type of a column; other types are compared as texts.
_READERS: Mapping[type, Callable[[str], object]] = {
    bool: lambda text: {"true": True, "false": False}.get(text.lower()),
    int: Decimal,
    Decimal: Decimal,
    float: float,
    dt.datetime: dt.datetime.fromisoformat,
    bytes: lambda text: bytes.fromhex(text.removeprefix("\\x")),
}


def _expected(values: Mapping[str, YamlValue]) -> str:
    return ", ".join(f"{name}: {_written(value)}" for name, value in values.items())


def _written(value: YamlValue) -> str:
    return value.text if isinstance(value, YamlScalar) else as_json(value)


def _told(row: _Row) -> str:
    return ", ".join(
        f"{name}: {_shown(value)}"
        for name, value in row.items()
        if name not in _LEDGER_COLUMNS
    )


def _shown(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dt.datetime():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case dict() | list():
            return json.dumps(value, default=str, ensure_ascii=False)
        case _:
            return str(value)
