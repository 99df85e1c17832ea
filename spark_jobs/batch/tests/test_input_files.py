"""Files are split where records begin, and refused before anything is done."""

from __future__ import annotations

import json
import os
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.batch import text_files
from tallyweir.spark_jobs.batch.file_chunk import FileRow
from tallyweir.spark_jobs.batch.file_source import (
    InputFile,
    read_input_files,
    read_rows,
)
from tallyweir.spark_jobs.batch.kafka_ranges import parse_ranges

_SCHEMA = {
    "type": "record",
    "name": "Meter",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "kw", "type": ["null", "int"], "default": None},
    ],
}


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    """A contract with a field that may be null."""
    path = tmp_path / "meter.v1.avsc"
    path.write_text(json.dumps(_SCHEMA))
    return load_contract(str(path))


def _rows(file: InputFile, contract: Contract) -> list[FileRow]:
    return [row for chunk in file.chunks for row in read_rows(chunk, contract)]


def test_every_row_is_in_one_chunk_whatever_their_size(
    tmp_path: Path, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is its line's, and its bytes are the file's."""
    path = tmp_path / "m.csv"
    path.write_bytes(
        b"\xef\xbb\xbfid,kw\r\n"
        + b"".join(b'"m\n%d",%d\r\n\r\n' % (n, n) for n in range(50))
    )
    (whole,) = read_input_files([path], contract)
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 40)
    (split,) = read_input_files([path], contract)
    assert 1 == len(whole.chunks) < len(split.chunks)
    rows = _rows(split, contract)
    assert rows == _rows(whole, contract)
    assert [row.number for row in rows] == [2 + 3 * n for n in range(50)]
    assert all(row.misfit is None for row in rows)
    assert rows[7].original == b'"m\n7",7'
    assert rows[-1].number < split.until_offset


def test_a_pattern_stands_for_its_files_in_the_order_of_their_paths(
    tmp_path: Path, contract: Contract
) -> None:
    """A file whose name has a pattern's characters is itself; each has its number."""
    for name in ("b.csv", "a.csv", "10.csv", "[x].csv"):
        (tmp_path / name).write_text("id\nm\n")
    given = [tmp_path / "[x].csv", tmp_path / "[ab1]*.csv"]
    found = read_input_files(given, contract)
    assert ["[x].csv", "10.csv", "a.csv", "b.csv"] == [one.path.name for one in found]
    assert [0, 1, 2, 3] == [one.partition for one in found]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["a.csv", "./a.csv"], "INPUT_TWICE"),
        (["a.csv", "*.csv"], "INPUT_TWICE"),
        (["link.csv", "a.csv"], "INPUT_TWICE"),
        (["none*.csv"], "INPUT_MISSING"),
    ],
)
def test_patterns_that_match_nothing_or_the_same_are_refused(
    tmp_path: Path, contract: Contract, given: list[str], code: str
) -> None:
    """Rows that are read twice would be repeats, or twice in the tables."""
    (tmp_path / "a.csv").write_text("id\nm\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    with pytest.raises(ConfigurationError, match=code):
        read_input_files([tmp_path / one for one in given], contract)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a,many", "Column kw: 'many' is no int."),
        (b"a", "1 cells under 2 columns."),
        (b"\xff,1", "The text is no UTF-8 (invalid start byte)."),
        (b'"a,1', "Not CSV (unexpected end of data)."),
        (b"a,99999999999", "A record of Meter"),
    ],
)
def test_a_row_that_does_not_fit_keeps_its_bytes_and_says_why(
    line: bytes, reason: str, tmp_path: Path, contract: Contract
) -> None:
    """The rows around it are read."""
    path = tmp_path / "m.csv"
    path.write_bytes(b"id,kw\nx,1\n" + line + b"\ny,\n")
    (file,) = read_input_files([path], contract)
    before, misfit, after = _rows(file, contract)
    assert (misfit.number, misfit.original, misfit.value) == (3, line, None)
    assert misfit.misfit is not None
    assert misfit.misfit.startswith(reason)
    assert before.value is not None
    assert after.value is not None


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("m.txt", b"", "INPUT_FORM"),
        ("missing.csv", None, "INPUT_MISSING"),
        ("m.csv", b"", "INPUT_EMPTY"),
        ("m.csv", b"kw\n1\n", "INPUT_COLUMN"),
        ("m.csv", b"id,watts\n", "INPUT_COLUMN"),
        ("m.csv", b"id,id\n", "INPUT_MALFORMED"),
        ("m.jsonl", b"x" * 1_048_577, "INPUT_MALFORMED"),
        ("m.parquet", b"PAR1 but not really", "INPUT_MALFORMED"),
        ("m.avro", b"Obj\x01 but not really", "INPUT_MALFORMED"),
    ],
)
def test_a_file_that_cannot_be_read_at_all_is_an_error(
    name: str, content: bytes | None, code: str, tmp_path: Path, contract: Contract
) -> None:
    """It names the file."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=code) as refusal:
        read_input_files([path], contract)
    assert name in refusal.value.saw


def test_a_parquet_file_with_a_column_too_many_is_refused(
    tmp_path: Path, contract: Contract
) -> None:
    """A misspelt optional column would be null for ever."""
    for columns in ({"id": ["a"], "Kw": [1]}, {"kw": [1]}):
        pq.write_table(pa.table(columns), tmp_path / "m.parquet")
        with pytest.raises(ConfigurationError, match="INPUT_COLUMN"):
            read_input_files([tmp_path / "m.parquet"], contract)


def test_a_damaged_avro_file_is_refused_whole(
    tmp_path: Path, contract: Contract
) -> None:
    """Also when only its last block is cut off."""
    path = tmp_path / "m.avro"
    with path.open("wb") as file:
        records = [{"id": f"m{n}", "kw": n} for n in range(100)]
        fastavro.writer(file, _SCHEMA, records, sync_interval=50)
    (good,) = read_input_files([path], contract)
    assert good.until_offset == 101
    assert [row.number for row in _rows(good, contract)] == list(range(1, 101))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ConfigurationError, match="INPUT_MALFORMED"):
        read_input_files([path], contract)


def test_a_file_that_grows_meanwhile_is_refused(
    tmp_path: Path, contract: Contract
) -> None:
    """And one that is written to without growing."""
    path = tmp_path / "m.csv"
    path.write_text("id\na\n")
    (file,) = read_input_files([path], contract)
    file.check_unchanged()
    os.utime(path, ns=(0, 1))
    with pytest.raises(ConfigurationError, match="INPUT_CHANGED"):
        file.check_unchanged()


def test_ranges_are_read_as_they_are_written() -> None:
    """In the order of partitions."""
    assert [str(one) for one in parse_ranges(["t:1:5-9", "t:0:0-3"])] == [
        "t[0] 0..3",
        "t[1] 5..9",
    ]


@pytest.mark.parametrize(
    "texts",
    [["t:0"], ["t:0:5-5"], ["t:0:9-5"], ["t:0:1-2", "u:1:1-2"], ["t:0:1-2", "t:0:3-4"]],
)
def test_ranges_that_are_none_are_refused(texts: list[str]) -> None:
    """Empty ones, those of several topics, and one partition twice."""
    with pytest.raises(ConfigurationError, match="RANGE_MALFORMED"):
        parse_ranges(texts)
