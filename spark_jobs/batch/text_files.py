"""CSV and JSON lines: cuts a file into records and chunks, and reads its rows.

A record is one line, except for line ends in CSV quotes. The bytes of the file alone
determine where a record begins and ends. So a task that reads it again, or from some
record on, finds the same records.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

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


#: Most bytes of one record. A quote that is still open after them counts as stray.
RECORD_BYTES_MAX = 1 << 20

_CELL = rb'(?:"(?:[^"]++|"")*+"[^,]*+|[^",][^,]*+|)'
_CLOSED = re.compile(rb"%b(?:,%b)*+" % (_CELL, _CELL))
_CLOSING = re.compile(rb'(?:[^"]++|"")*+"[^,]*+(?:,%b)*+' % _CELL)


class LineRecord(NamedTuple):
    """One record of a file.

    Attributes:
        line: Number of its first line, from 1.
        begin: Its first byte in the file.
        content: Its bytes, including the last line end.
    """

    line: int
    begin: int
    content: bytes


class LineTooLongError(Exception):
    """A line is longer than a record may be.

    Attributes:
        line: Number of the line, from 1.
    """

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def cut_records(
    file: BinaryIO, *, begin: int = 0, line: int = 1, quoted: bool
) -> Iterator[LineRecord]:
    """Yield the records of a file; skip blank lines.

    If a line opens a quote that is not closed within ``RECORD_BYTES_MAX``, that line
    alone is a record, and reading goes on after it: one stray quote costs one record.

    Args:
        file: File, open for reading bytes.
        begin: First byte of a record.
        line: Number of the line at ``begin``.
        quoted: Whether cells in quotes may hold line ends, as in CSV.

    Raises:
        LineTooLongError: A line is longer than ``RECORD_BYTES_MAX``.
    """
    file.seek(begin)
    while content := _read_line(file, line):
        lines = 1
        if quoted and b'"' in content and not _CLOSED.fullmatch(content):
            rest = _read_quoted_rest(file, line, room=RECORD_BYTES_MAX - len(content))
            content += b"".join(rest)
            lines += len(rest)
            if not rest:
                file.seek(begin + len(content))
        if content.strip():
            yield LineRecord(line, begin, content)
        begin += len(content)
        line += lines


def _read_line(file: BinaryIO, line: int) -> bytes:
    content = file.readline(RECORD_BYTES_MAX + 1)
    if len(content) > RECORD_BYTES_MAX:
        raise LineTooLongError(line)
    return content


def _read_quoted_rest(file: BinaryIO, line: int, *, room: int) -> list[bytes]:
    """Read on to the line that closes all quotes; return no lines if there is none."""
    rest: list[bytes] = []
    while content := _read_line(file, line + len(rest) + 1):
        rest.append(content)
        room -= len(content)
        if room < 0:
            return []
        if _CLOSING.fullmatch(content):
            return rest
    return []
