"""Tables of words: what was appended is there, what has no room is told."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tallyweir.sinks.seen_ids.word_table import WordTable


def _words(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def test_rows_are_there_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    """Column by column, to the largest word."""
    table = WordTable(tmp_path, columns=2, rows=3)
    table.append((_words(1, 2**64 - 1), _words(3, 4)))
    table.append((_words(5), _words(6)))
    assert table.map().tolist() == [[1, 2**64 - 1, 5], [3, 4, 6]]


def test_a_table_that_was_not_filled_shows_what_was_appended(tmp_path: Path) -> None:
    """IDs that have expired take no room in the end."""
    table = WordTable(tmp_path, columns=2, rows=1_000)
    table.append((_words(1), _words(2)))
    assert table.map().tolist() == [[1], [2]]


def test_every_other_word_of_a_column_is_written_as_such(tmp_path: Path) -> None:
    """Fingerprints lie beside each other in pairs."""
    pairs = np.arange(10, dtype=np.uint64).reshape(5, 2)
    table = WordTable(tmp_path, columns=2, rows=5)
    table.append((pairs[:, 0], pairs[:, 1]))
    assert table.map().tolist() == pairs.T.tolist()


def test_a_write_that_the_kernel_cuts_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does with more than two gigabytes."""
    whole = os.pwrite

    def write_five_bytes(file: int, left: memoryview, offset: int) -> int:
        return whole(file, left[:5], offset)

    table = WordTable(tmp_path, columns=1, rows=4)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write_five_bytes)
        table.append((_words(2**63, 1, 2**40, 7),))
    assert table.map().tolist() == [[2**63, 1, 2**40, 7]]


def test_rows_that_could_not_be_written_can_be_appended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them counts, whatever was written of them."""
    whole = os.pwrite

    def fail_behind_the_first_column(file: int, left: memoryview, offset: int) -> int:
        if offset >= 16:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole(file, left, offset)

    table = WordTable(tmp_path, columns=2, rows=2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail_behind_the_first_column)
        with pytest.raises(OSError, match="Input/output"):
            table.append((_words(1, 2), _words(3, 4)))
    table.append((_words(5, 6), _words(7, 8)))
    assert table.map().tolist() == [[5, 6], [7, 8]]


def test_more_rows_than_there_is_room_for_are_refused(tmp_path: Path) -> None:
    """They would be written over those of the next column."""
    table = WordTable(tmp_path, columns=2, rows=1)
    with pytest.raises(AssertionError, match="no room"):
        table.append((_words(1, 2), _words(3, 4)))


def test_a_mapped_table_cannot_be_written(tmp_path: Path) -> None:
    """It is shared by views that other threads ask."""
    table = WordTable(tmp_path, columns=1, rows=1)
    table.append((_words(1),))
    with pytest.raises(ValueError, match="read-only"):
        table.map()[0, 0] = 2
