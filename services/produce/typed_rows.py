"""Read records from CSV or JSON lines; the first row that does not fit ends them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from typing import TextIO

from tallyweir.schemas.codec import EventRecord
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.text_rows import CsvRows, JsonRows, RowError
from tallyweir.sinks.protocol.errors import ConfigurationError


class TypedRows:
    """The records of a CSV or JSON lines stream, in order; can be read once.

    Args:
        lines: The open text; for CSV with untranslated newlines (``newline=""``).
        contract: The contract of the rows.
        form: ``csv`` (with a header line) or ``jsonl``.
        limit: Stop after this many records; None for all.

    Attributes:
        line_number: The line of the row yielded last, from 1.
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
        self._form = form
        self._limit = limit

    def __iter__(self) -> Iterator[EventRecord]:
        """Yield one record per row.

        Raises:
            ConfigurationError: A row does not fit; the error names line, column and
                value.
        """
        try:
            rows = self._csv() if self._form == "csv" else self._json_lines()
            yield from islice(rows, self._limit)
        except UnicodeDecodeError as exc:
            raise self._refusal(
                "INPUT_MALFORMED", f"the text is not UTF-8 ({exc.reason})"
            ) from exc
        except RowError as exc:
            raise self._refusal(exc.code, exc.saw) from exc

    def _csv(self) -> Iterator[EventRecord]:
        reader = csv.reader(self._lines, strict=True)
        try:
            header = next(reader, None)
            self.line_number = 1
            if not header:
                raise self._refusal("INPUT_EMPTY", "there is no header line")
            rows = CsvRows(self._contract, header)
            for cells in reader:
                self.line_number = reader.line_num
                if cells:
                    yield rows.read(cells)
        except csv.Error as exc:
            self.line_number = reader.line_num
            raise self._refusal("INPUT_MALFORMED", f"not CSV ({exc})") from exc

    def _json_lines(self) -> Iterator[EventRecord]:
        rows = JsonRows(self._contract)
        for number, line in enumerate(self._lines, start=1):
            self.line_number = number
            if line.strip():
                yield rows.read_text(line)

    def _refusal(self, code: str, saw: str) -> ConfigurationError:
        return ConfigurationError(
            code,
            saw=f"Line {self.line_number}: {saw}.",
            why=f"Each row must be a {self._contract.reference}; those before this "
            "line may have been sent.",
            fix="Correct the row and send the file again: repeats do no harm.",
        )
