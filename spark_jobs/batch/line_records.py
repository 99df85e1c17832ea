"""Cuts a text file into records: one per line, except for line ends in CSV quotes.

The bytes of the file alone determine where a record begins and ends. So a task that
reads it again, or from some record on, finds the same records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

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
