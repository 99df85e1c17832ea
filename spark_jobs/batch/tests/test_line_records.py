"""Records are cut where their bytes say, whoever begins where."""

from __future__ import annotations

import csv
import io
import random

import pytest

from tallyweir.spark_jobs.batch import text_files
from tallyweir.spark_jobs.batch.text_files import LineTooLongError, cut_records


def cut(content: bytes, *, quoted: bool = True) -> list[tuple[int, bytes]]:
    """Line and content of every record."""
    records = cut_records(io.BytesIO(content), quoted=quoted)
    return [(record.line, record.content) for record in records]


def test_a_line_is_a_record_and_a_blank_line_is_none() -> None:
    """Line numbers count the blank ones; the last line needs no end."""
    assert cut(b"a\n\n  \r\nb\r\nc") == [(1, b"a\n"), (4, b"b\r\n"), (5, b"c")]


def test_a_line_end_in_quotes_is_part_of_its_record() -> None:
    """Also over blank lines, doubled quotes, and from one quoted cell to the next."""
    content = b'a,"x\n\n""y"",\n"\n"1\n2","3\n4"\nlast\n'
    assert cut(content) == [
        (1, b'a,"x\n\n""y"",\n"\n'),
        (5, b'"1\n2","3\n4"\n'),
        (8, b"last\n"),
    ]


def test_a_quote_within_a_bare_cell_is_a_letter() -> None:
    """Five-inch pipes do not swallow the lines that follow."""
    assert cut(b'5" pipe,1\nx,6"\n') == [(1, b'5" pipe,1\n'), (2, b'x,6"\n')]


def test_without_quoting_every_line_is_a_record() -> None:
    """A quote of JSON that is not closed is one broken line."""
    assert cut(b'{"a": "\n1\n', quoted=False) == [(1, b'{"a": "\n'), (2, b"1\n")]


def test_a_stray_quote_costs_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the file ends before it is closed, or it goes on for too long."""
    assert cut(b'"a,1\nb,2\n') == [(1, b'"a,1\n'), (2, b"b,2\n")]
    monkeypatch.setattr(text_files, "RECORD_BYTES_MAX", 10)
    assert cut(b'"a\nbbbb\nccc\n"\n')[:2] == [(1, b'"a\n'), (2, b"bbbb\n")]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be read into memory whole."""
    monkeypatch.setattr(text_files, "RECORD_BYTES_MAX", 4)
    with pytest.raises(LineTooLongError) as refusal:
        cut(b"a\nabcdef\n")
    assert refusal.value.line == 2


def test_any_record_can_be_begun_at() -> None:
    """What follows it is what followed it before, whatever the cells hold."""
    seed = 20_261
    print("seed", seed)  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    cells = ["", "a", 'say "x"', "two\nlines", "c,d", "\n\n", '"', "\r\n"]
    text = io.StringIO(newline="")
    rows = [[chance.choice(cells) for _ in range(3)] for _ in range(400)]
    csv.writer(text).writerows(rows)
    content = text.getvalue().encode()
    records = list(cut_records(io.BytesIO(content), quoted=True))
    assert content == b"".join(record.content for record in records)
    assert rows == [
        row for r in records for row in csv.reader([r.content.decode()], strict=True)
    ]
    for number in chance.sample(range(400), 20):
        first = records[number]
        again = cut_records(
            io.BytesIO(content), begin=first.begin, line=first.line, quoted=True
        )
        assert records[number:] == list(again)
