"""Parquet and Avro files: their rows have types, and are numbered from 1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tallyweir.schemas.codec import EventRecord
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.formats.avro.avro_file import AvroFileError, read_avro_file
from tallyweir.spark_jobs.batch.file_chunk import (
    FileChunk,
    FileForm,
    FileRow,
    fitting_row,
    unreadable,
)

_ROWS_AT_A_TIME = 2_000


def split_parquet_file(
    path: Path, partition: int, contract: Contract
) -> tuple[list[FileChunk], int]:
    """Return a chunk for each row group, and one more than the number of rows.

    Raises:
        ConfigurationError: ``INPUT_COLUMN`` or ``INPUT_MALFORMED``.
        OSError: The file cannot be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata
            names = file.schema_arrow.names
            sizes = [
                metadata.row_group(number).num_rows
                for number in range(metadata.num_row_groups)
            ]
    except pa.ArrowInvalid as exc:
        raise unreadable(path, "INPUT_MALFORMED", f"no Parquet ({exc})") from exc
    _check_columns(path, names, contract)
    chunks = []
    first = 1
    for number, rows in enumerate(sizes):
        chunks.append(
            FileChunk(
                partition=partition,
                path=str(path),
                form=FileForm.PARQUET,
                begin=number,
                end=number + 1,
                first=first,
            )
        )
        first += rows
    return chunks, first


def read_parquet_rows(chunk: FileChunk, contract: Contract) -> Iterator[FileRow]:
    """Yield the rows of a row group in order."""
    number = chunk.first
    with pq.ParquetFile(chunk.path) as file:
        for batch in file.iter_batches(_ROWS_AT_A_TIME, row_groups=[chunk.begin]):
            for record in batch.to_pylist():
                yield fitting_row(contract, number, _as_json(record), record)
                number += 1


def split_avro_file(path: Path, partition: int) -> tuple[list[FileChunk], int]:
    """Return the file as one chunk, and one more than the number of its rows.

    It decodes the whole file, so that a damaged file is reported before the run begins.

    Raises:
        ConfigurationError: ``INPUT_MALFORMED``.
        ContractError: The file's own schema allows what could kill a decoder.
        OSError: The file cannot be read.
    """
    try:
        rows = sum(1 for _ in read_avro_file(path))
    except AvroFileError as exc:
        raise unreadable(path, "INPUT_MALFORMED", str(exc)) from exc
    whole = FileChunk(
        partition=partition,
        path=str(path),
        form=FileForm.AVRO,
        begin=0,
        end=1,
        first=1,
    )
    return [whole] if rows else [], rows + 1


def read_avro_rows(chunk: FileChunk, contract: Contract) -> Iterator[FileRow]:
    """Yield the rows of a file in order."""
    for number, record in enumerate(read_avro_file(Path(chunk.path)), start=1):
        yield fitting_row(contract, number, _as_json(record), record)


def _check_columns(path: Path, names: list[str], contract: Contract) -> None:
    known = {field.name for field in contract.fields}
    for name in names:
        if name not in known:
            raise unreadable(
                path,
                "INPUT_COLUMN",
                f"the column {name!r:.60} is not in {contract.reference} "
                f"({', '.join(sorted(known))})",
            )
    for field in contract.fields:
        if field.name not in names and not field.nullable:
            raise unreadable(
                path, "INPUT_COLUMN", f"the column {field.name} is missing"
            )


def _as_json(record: EventRecord) -> bytes:
    """Write a row as JSON for people, who may find it among the dead letters."""
    return json.dumps(record, default=str, ensure_ascii=False).encode(errors="replace")
