"""Cuts a text file into records: a line each, but for line ends inside of CSV quotes.

Where a record begins and ends follows from the bytes of the file alone, so whoever
reads it again, or from some record on, finds the same records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

#: Of one record. A quote that is not closed by then never will be.
RECORD_BYTES_MAX = 1 << 20

_CELL = rb'(?:"(?:[^"]++|"")*+"[^,]*+|[^",][^,]*+|)'
_CLOSED = re.compile(rb"%b(?:,%b)*+" % (_CELL, _CELL))
_CLOSING = re.compile(rb'(?:[^"]++|"")*+"[^,]*+(?:,%b)*+' % _CELL)


class LineRecord(NamedTuple):
    """One record of a file.

    Attributes:
        line: Number of its first line, from 1.
        begin: Where it begins in the file, in bytes.
        content: All of it, its last line end included.
    """

    line: int
    begin: int
    content: bytes


class LineTooLongError(Exception):
    """A line has more bytes than a record may have.

    Attributes:
        line: Its number, from 1.
    """

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def cut_records(
    file: BinaryIO, *, begin: int = 0, line: int = 1, quoted: bool
) -> Iterator[LineRecord]:
    """Yield the records of a file; blank lines are none.

    A line that opens a quote which nothing closes within ``RECORD_BYTES_MAX`` is a
    record by itself, and reading goes on behind it: one stray quote costs one record.

    Args:
        file: Open for reading bytes.
        begin: Where a record begins.
        line: The number of that line.
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
    """Read on to the line that closes all quotes; nothing if there is none."""
    rest: list[bytes] = []
    while content := _read_line(file, line + len(rest) + 1):
        rest.append(content)
        room -= len(content)
        if room < 0:
            return []
        if _CLOSING.fullmatch(content):
            return rest
    return []
