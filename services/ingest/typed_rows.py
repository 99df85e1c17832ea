"""Rows of CSV or JSON lines as records of a contract.

Text becomes what the contract says and nothing else: no guess at types, no default
for a cell that does not parse. An empty CSV cell is null where the contract allows
null. Columns that the contract lacks are an error, because a misspelt optional
column would else be null for ever.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import NoReturn, TextIO

from schemas.codec import EventRecord
from schemas.contract import Contract, ContractField
from sinks.protocol.errors import ConfigurationError

Parse = Callable[[str], object]

_WHOLE = re.compile(r"[+-]?\d{1,19}")
_CELL_SHOWN = 60


class TypedRows:
    """The records of a CSV or JSON lines stream, in order; can be read once.

    Args:
        lines: Open text; its newlines untranslated for CSV (``newline=""``).
        contract: What the rows are.
        form: ``csv`` (with a header line) or ``jsonl``.
        limit: Stop after so many records; None for all.

    Attributes:
        line_number: Of the row yielded last, from 1.
    """

    def __init__(
        self,
        lines: TextIO,
        contract: Contract,
        *,
        form: str,
        limit: int | None = None,
    ) -> None:
        assert form in {"csv", "jsonl"}
        self.line_number = 0
        self._lines = lines
        self._contract = contract
        self._fields = {field.name: field for field in contract.fields}
        self._form = form
        self._limit = limit

    def __iter__(self) -> Iterator[EventRecord]:
        """Yield one record per row.

        Raises:
            ConfigurationError: A row does not fit; names line, column and value.
        """
        try:
            rows = self._csv() if self._form == "csv" else self._json_lines()
            yield from islice(rows, self._limit)
        except UnicodeDecodeError as exc:
            self._refuse("INPUT_MALFORMED", f"the text is no UTF-8 ({exc.reason})")

    def _csv(self) -> Iterator[EventRecord]:
        reader = csv.reader(self._lines, strict=True)
        try:
            header = next(reader, None)
            self.line_number = 1
            if not header:
                self._refuse("INPUT_EMPTY", "there is no header line")
            self._require_columns(header)
            parsers = [self._cell_parser(self._fields[name]) for name in header]
            for cells in reader:
                self.line_number = reader.line_num
                if not cells:
                    continue
                if len(cells) != len(header):
                    self._refuse(
                        "INPUT_MALFORMED",
                        f"{len(cells)} cells under {len(header)} columns",
                    )
                yield {
                    name: self._parse(name, cell, parse)
                    for name, cell, parse in zip(header, cells, parsers, strict=True)
                }
        except csv.Error as exc:
            self.line_number = reader.line_num
            self._refuse("INPUT_MALFORMED", f"not CSV ({exc})")

    def _json_lines(self) -> Iterator[EventRecord]:
        parsers = {
            field.name: _PARSERS[_family(field.type)]
            for field in self._contract.fields
            if _family(field.type) in _TEXT_IN_JSON
        }
        for number, line in enumerate(self._lines, start=1):
            self.line_number = number
            if not line.strip():
                continue
            row = self._load_json(line)
            unknown = sorted(row.keys() - self._fields.keys())
            if unknown:
                self._refuse_unknown(unknown[0])
            yield {
                name: self._parse(name, value, parsers[name])
                if isinstance(value, str) and name in parsers
                else value
                for name, value in row.items()
            }

    def _load_json(self, line: str) -> dict[str, object]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as exc:
            self._refuse("INPUT_MALFORMED", f"not JSON ({exc})")
        if not isinstance(row, dict):
            self._refuse("INPUT_MALFORMED", "not a JSON object")
        return row

    def _require_columns(self, header: list[str]) -> None:
        for name in header:
            if name not in self._fields:
                self._refuse_unknown(name)
        if len(set(header)) != len(header):
            self._refuse("INPUT_MALFORMED", "a column is there twice")
        for field in self._contract.fields:
            if field.name not in header and not field.nullable:
                self._refuse("INPUT_COLUMN", f"the column {field.name} is missing")

    def _cell_parser(self, field: ContractField) -> Parse:
        family = _family(field.type)
        if family not in _PARSERS:
            self._refuse(
                "INPUT_COLUMN",
                f"the column {field.name} is a {field.type}, which CSV cannot carry",
            )
        parse = _PARSERS[family]
        if field.nullable:
            return lambda cell: parse(cell) if cell else None
        return parse

    def _parse(self, name: str, cell: str, parse: Parse) -> object:
        try:
            return parse(cell)
        except (ValueError, InvalidOperation):
            kind = self._fields[name].type
            shown = f"{cell[:_CELL_SHOWN]!r}"
            self._refuse("INPUT_VALUE", f"column {name}: {shown} is no {kind}")

    def _refuse_unknown(self, name: str) -> NoReturn:
        self._refuse(
            "INPUT_COLUMN",
            f"the column {name[:_CELL_SHOWN]!r} is not in {self._contract.reference} "
            f"({', '.join(self._fields)})",
        )

    def _refuse(self, code: str, saw: str) -> NoReturn:
        raise ConfigurationError(
            code,
            saw=f"Line {self.line_number}: {saw}.",
            why=f"Each row must be a {self._contract.reference}; those before this "
            "line may have been sent.",
            fix="Correct the row and send the file again: repeats do no harm.",
        )


def _family(kind: str) -> str:
    return kind.partition("(")[0]


def _whole(cell: str) -> int:
    # Stricter than int(), which takes underscores and other scripts' digits.
    if not _WHOLE.fullmatch(cell) or not cell.isascii():
        raise ValueError(cell)
    return int(cell)


def _real(cell: str) -> float:
    if "_" in cell:
        raise ValueError(cell)
    return float(cell)


def _boolean(cell: str) -> bool:
    word = cell.lower()
    if word not in {"true", "false"}:
        raise ValueError(cell)
    return word == "true"


def _instant(cell: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(cell)
    if moment.tzinfo is None:
        raise ValueError(cell)
    return moment


def _local(cell: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(cell)
    if moment.tzinfo is not None:
        raise ValueError(cell)
    return moment


_PARSERS: dict[str, Parse] = {
    "boolean": _boolean,
    "int": _whole,
    "long": _whole,
    "float": _real,
    "double": _real,
    "string": str,
    "uuid": str,
    "enum": str,
    "date": dt.date.fromisoformat,
    "timestamp-millis": _instant,
    "timestamp-micros": _instant,
    "local-timestamp-millis": _local,
    "local-timestamp-micros": _local,
    "decimal": Decimal,
}
_TEXT_IN_JSON = {
    "date",
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
    "decimal",
}
