"""Read rows of CSV or JSON lines as records of a contract.

Only the contract decides what a text becomes: no type is guessed, and a cell that does
not parse gets no default. An empty CSV cell is null where the contract allows null. A
column that the contract lacks is an error, because a misspelt optional column would
otherwise always be null.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from decimal import InvalidOperation
from typing import NoReturn

from tallyweir.schemas.contract import Contract, ContractField
from tallyweir.schemas.formats.format import EventRecord
from tallyweir.schemas.json_records import PARSERS as TEXT_PARSERS
from tallyweir.schemas.json_records import UnreadableTextError, compile_reader
from tallyweir.schemas.schema_tree import is_flat

Parse = Callable[[str], object]

_WHOLE = re.compile(r"[+-]?\d{1,19}")
_CELL_SHOWN = 60


class RowError(Exception):
    """A row, or the header above it, that does not fit its contract.

    Attributes:
        code: ``INPUT_MALFORMED``, ``INPUT_COLUMN`` or ``INPUT_VALUE``.
        saw: What was seen, without the row's place, which only the caller knows.
    """

    def __init__(self, code: str, saw: str) -> None:
        super().__init__(code, saw)
        self.code = code
        self.saw = saw


class CsvRows:
    """Reads the rows under one header line.

    Args:
        contract: The contract of the rows.
        header: The names of the columns.

    Raises:
        RowError: The header does not fit the contract.
    """

    def __init__(self, contract: Contract, header: Sequence[str]) -> None:
        self._contract = contract
        self._fields = {field.name: field for field in contract.fields}
        self._header = header
        for name in header:
            if name not in self._fields:
                _refuse_unknown(contract, name)
        if len(set(header)) != len(header):
            raise RowError("INPUT_MALFORMED", "a column appears twice")
        for field in contract.fields:
            if field.name not in header and not field.nullable:
                raise RowError("INPUT_COLUMN", f"the column {field.name} is missing")
        nested = {one.name for one in contract.tree.fields if not is_flat(one.node)}
        self._parsers = [
            _cell_parser(self._fields[name], is_nested=name in nested)
            for name in header
        ]

    def read(self, cells: Sequence[str]) -> EventRecord:
        """Make a record of a row's cells.

        Raises:
            RowError: The row does not fit.
        """
        if len(cells) != len(self._header):
            raise RowError(
                "INPUT_MALFORMED",
                f"{len(cells)} cells under {len(self._header)} columns",
            )
        return {
            name: _parse(self._fields[name], cell, parse)
            for name, cell, parse in zip(
                self._header, cells, self._parsers, strict=True
            )
        }

    def read_text(self, text: str) -> EventRecord:
        """Make a record of the text of one row, which may contain line ends.

        Raises:
            RowError: The row does not fit, or it is not one row of CSV.
        """
        try:
            rows = list(csv.reader([text], strict=True))
        except csv.Error as exc:
            raise RowError("INPUT_MALFORMED", f"not CSV ({exc})") from exc
        assert len(rows) == 1, "the text is of one row"
        return self.read(rows[0])


class JsonRows:
    """Reads JSON objects.

    Args:
        contract: The contract of the objects.
    """

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._names = {field.name for field in contract.fields}
        self._read = compile_reader(contract)

    def read_text(self, text: str) -> EventRecord:
        """Make a record of one line of JSON.

        Raises:
            RowError: The line does not fit.
        """
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise RowError("INPUT_MALFORMED", f"not JSON ({exc})") from exc
        if not isinstance(row, dict):
            raise RowError("INPUT_MALFORMED", "not a JSON object")
        unknown = sorted(row.keys() - self._names)
        if unknown:
            _refuse_unknown(self._contract, unknown[0])
        try:
            return self._read(row)
        except UnreadableTextError as exc:
            raise RowError("INPUT_VALUE", f"column {exc.at}: {exc.saw}") from None


def _cell_parser(field: ContractField, *, is_nested: bool) -> Parse:
    family = _family(field.type)
    if is_nested or family not in _PARSERS:
        raise RowError(
            "INPUT_COLUMN",
            f"the column {field.name} is a {field.type}, which CSV cannot carry",
        )
    parse = _PARSERS[family]
    if field.nullable:
        return lambda cell: parse(cell) if cell else None
    return parse


def _parse(field: ContractField, cell: str, parse: Parse) -> object:
    try:
        return parse(cell)
    except (ValueError, InvalidOperation):
        shown = f"{cell[:_CELL_SHOWN]!r}"
        raise RowError(
            "INPUT_VALUE", f"column {field.name}: {shown} is no {field.type}"
        ) from None


def _refuse_unknown(contract: Contract, name: str) -> NoReturn:
    known = ", ".join(field.name for field in contract.fields)
    raise RowError(
        "INPUT_COLUMN",
        f"the column {name[:_CELL_SHOWN]!r} is not in {contract.reference} ({known})",
    )


def _family(kind: str) -> str:
    return kind.partition("(")[0]


def _whole(cell: str) -> int:
    # This is stricter than int(), which accepts underscores and other scripts' digits.
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


_PARSERS: dict[str, Parse] = {
    "boolean": _boolean,
    "smallint": _whole,
    "int": _whole,
    "long": _whole,
    "float": _real,
    "double": _real,
    "string": str,
    "uuid": str,
    "duration": str,
    "interval": str,
    "numeric": str,
    "json": str,
    "enum": str,
    **{kind: parse for kind, parse in TEXT_PARSERS.items() if kind != "bytes"},
}
