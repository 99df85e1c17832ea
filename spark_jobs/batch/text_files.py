"""CSV and JSON lines: splits a file into chunks, and reads its rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.text_rows import CsvRows, JsonRows, RowError
from tallyweir.spark_jobs.batch.file_chunk import (
    FileChunk,
    FileForm,
    FileRow,
    fitting_row,
    misfit_row,
    unreadable,
)
from tallyweir.spark_jobs.batch.line_records import (
    LineRecord,
    LineTooLongError,
    cut_records,
)

#: Approximate bytes of a task.
CHUNK_BYTES = 8 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def split_text_file(
    path: Path, partition: int, form: FileForm, contract: Contract
) -> tuple[list[FileChunk], int]:
    """Return a file's chunks, and one more than the number of its last row's line.

    Raises:
        ConfigurationError: ``INPUT_EMPTY``, ``INPUT_COLUMN`` or ``INPUT_MALFORMED``.
        OSError: The file cannot be read.
    """
    begins: list[tuple[int, int]] = []
    header: tuple[str, ...] = ()
    line = end = 0
    with path.open("rb") as file:
        records = cut_records(file, quoted=form is FileForm.CSV)
        try:
            if form is FileForm.CSV:
                header = _read_header(path, next(records, None), contract)
            for line, begin, content in records:
                if not begins or begin - begins[-1][0] >= CHUNK_BYTES:
                    begins.append((begin, line))
                end = begin + len(content)
        except LineTooLongError as exc:
            raise unreadable(
                path, "INPUT_MALFORMED", f"line {exc.line} has more than a mebibyte"
            ) from exc
    chunks = [
        FileChunk(
            partition=partition,
            path=str(path),
            form=form,
            begin=begin,
            end=following,
            first=first,
            header=header,
        )
        for (begin, first), (following, _) in pairwise([*begins, (end, line)])
    ]
    return chunks, line + 1


def read_text_rows(chunk: FileChunk, contract: Contract) -> Iterator[FileRow]:
    """Yield the rows of a chunk in order; a row that does not fit says why."""
    is_csv = chunk.form is FileForm.CSV
    rows = CsvRows(contract, chunk.header) if is_csv else JsonRows(contract)
    with Path(chunk.path).open("rb") as file:
        for line, begin, content in cut_records(
            file, begin=chunk.begin, line=chunk.first, quoted=is_csv
        ):
            if begin >= chunk.end:
                return
            original = content.removesuffix(b"\n").removesuffix(b"\r")
            try:
                record = rows.read_text(original.decode())
            except UnicodeDecodeError as exc:
                yield misfit_row(line, original, f"the text is no UTF-8 ({exc.reason})")
            except RowError as exc:
                yield misfit_row(line, original, exc.saw)
            else:
                yield fitting_row(contract, line, original, record)


def _read_header(
    path: Path, record: LineRecord | None, contract: Contract
) -> tuple[str, ...]:
    if record is None:
        raise unreadable(path, "INPUT_EMPTY", "there is no header line")
    try:
        text = record.content.removeprefix(_BYTE_ORDER_MARK).decode()
        (names,) = csv.reader([text], strict=True)
        CsvRows(contract, names)
    except UnicodeDecodeError as exc:
        raise unreadable(path, "INPUT_MALFORMED", "the header is not UTF-8") from exc
    except csv.Error as exc:
        raise unreadable(path, "INPUT_MALFORMED", f"no CSV header ({exc})") from exc
    except RowError as exc:
        raise unreadable(path, exc.code, exc.saw) from exc
    return tuple(names)
