"""A table of words in a file that is written once, and then mapped, not read.

A file holds its columns one after the other, in native byte order, 8 bytes per value.
It has no name, so it vanishes when the process ends, in whatever way.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tallyweir.sinks.seen_ids.ordering import U64Array

_WORD_BYTES = 8


class WordTable:
    """Takes rows from the first to the last, and then shows them.

    Rows are written to the file, not through the mapping: there, the first write to
    each page stops the writer, which takes a third longer.

    Args:
        directory: Where the file takes its space.
        columns: Number of columns; each lies in one piece.
        rows: Largest number of rows, at least one; there may be fewer in the end.

    Raises:
        OSError: The disk has no room.

    Crash:
        The file vanishes with the process.
    """

    def __init__(self, directory: Path, *, columns: int, rows: int) -> None:
        self._shape = (columns, rows)
        self._written = 0
        # A clean-up may have removed the folder.
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            # This fails without disk space now, and not after an hour of merging.
            os.posix_fallocate(file.fileno(), 0, columns * rows * _WORD_BYTES)
            self._descriptor = os.dup(file.fileno())
        # This also closes a table that is given up half written.
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def append(self, columns: Sequence[U64Array]) -> None:
        """Write the next rows.

        Raises:
            OSError: They could not be written; no row of this call counts.
        """
        count, rows = self._shape
        end = self._written + len(columns[0])
        assert end <= rows, "a table has no room for more"
        assert len(columns) == count, "a row has a word in each column"
        for number, column in enumerate(columns):
            assert len(column) == len(columns[0]), "a row has a word in each column"
            self._write(column, number * rows + self._written)
        self._written = end

    def map(self) -> U64Array:
        """Show the rows, shape (columns, rows); after this, no row can be added.

        Raises:
            OSError: The file could not be mapped.
        """
        count, rows = self._shape
        size = count * rows * _WORD_BYTES
        mapped = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ)
        self._close()
        words = np.frombuffer(mapped, dtype=np.uint64).reshape(count, rows)
        return words[:, : self._written]

    def _write(self, column: U64Array, place: int) -> None:
        left = np.ascontiguousarray(column).data.cast("B")
        offset = place * _WORD_BYTES
        while left:
            written = os.pwrite(self._descriptor, left, offset)
            left, offset = left[written:], offset + written
