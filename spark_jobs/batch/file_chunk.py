"""A part of a file that one task reads, and the rows that it finds there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from schemas.codec import EventRecord, encode
from schemas.contract import Contract
from schemas.errors import EncodeError
from sinks.protocol.errors import ConfigurationError


class FileForm(Enum):
    """What is in a file, by how its name ends."""

    CSV = ".csv"
    JSON_LINES = ".jsonl"
    PARQUET = ".parquet"
    AVRO = ".avro"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChunk:
    """A part of a file.

    Attributes:
        partition: The file's, in the topic of the run.
        path: The file.
        form: What is in it.
        begin: Where the chunk begins: a byte of a text, a row group of Parquet.
        end: Where the next one begins.
        first: The number of its first line or row, from 1.
        header: The names of the columns, for CSV.
    """

    partition: int
    path: str
    form: FileForm
    begin: int
    end: int
    first: int
    header: tuple[str, ...] = ()


class FileRow(NamedTuple):
    """A row, as its file has it.

    Attributes:
        number: Of its line or row, from 1.
        original: Its bytes in the file; as JSON, where the file has rows of no bytes.
        value: The event, encoded; None when it does not fit.
        misfit: Why it does not.
    """

    number: int
    original: bytes
    value: bytes | None
    misfit: str | None


def fitting_row(
    contract: Contract, number: int, original: bytes, record: EventRecord
) -> FileRow:
    """Encode a row as a producer would have, or say why it is no event."""
    try:
        return FileRow(number, original, encode(contract, record), None)
    except EncodeError as exc:
        return misfit_row(number, original, exc.saw)


def misfit_row(number: int, original: bytes, saw: str) -> FileRow:
    """Return a row that is no event of the contract."""
    misfit = f"{saw[:1].upper()}{saw[1:].removesuffix('.')}."
    return FileRow(number, original, None, misfit)


def unreadable(path: object, code: str, saw: str) -> ConfigurationError:
    """Say that none of a file's rows can be read."""
    return ConfigurationError(
        code,
        saw=f"{path}: {saw}.",
        why="Its rows cannot be read as they were meant.",
        fix="Correct the file, and run again; nothing was published.",
    )
