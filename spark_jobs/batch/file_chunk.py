"""The part of a file that one task reads, and its rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tallyweir.schemas.codec import EventRecord, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import EncodeError
from tallyweir.sinks.protocol.errors import ConfigurationError


class FileForm(Enum):
    """The format of a file, by the ending of its name."""

    CSV = ".csv"
    JSON_LINES = ".jsonl"
    PARQUET = ".parquet"
    AVRO = ".avro"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChunk:
    """A part of a file.

    Attributes:
        partition: Partition of the file in the topic of the run.
        path: Path of the file.
        form: Format of the file.
        begin: Start of the chunk: a byte of a text file, a row group of Parquet.
        end: Start of the next chunk.
        first: Number of its first line or row, from 1.
        header: Names of the columns, for CSV.
    """

    partition: int
    path: str
    form: FileForm
    begin: int
    end: int
    first: int
    header: tuple[str, ...] = ()


class FileRow(NamedTuple):
    """A row of a file.

    Attributes:
        number: Number of its line or row, from 1.
        original: Its bytes in the file; the row as JSON if the format has no row bytes.
        value: The encoded event; None if the row does not fit the contract.
        misfit: Why the row does not fit; None if it does.
    """

    number: int
    original: bytes
    value: bytes | None
    misfit: str | None


def fitting_row(
    contract: Contract, number: int, original: bytes, record: EventRecord
) -> FileRow:
    """Encode a row as a producer would, or explain why it is no event."""
    try:
        return FileRow(number, original, encode(contract, record), None)
    except EncodeError as exc:
        return misfit_row(number, original, exc.saw)


def misfit_row(number: int, original: bytes, saw: str) -> FileRow:
    """Return a row that is no event of the contract."""
    misfit = f"{saw[:1].upper()}{saw[1:].removesuffix('.')}."
    return FileRow(number, original, None, misfit)


def unreadable(path: object, code: str, saw: str) -> ConfigurationError:
    """Return the error for a file whose rows cannot be read."""
    return ConfigurationError(
        code,
        saw=f"{path}: {saw}.",
        why="The run would misread the file's rows.",
        fix="Correct the file and run again; nothing was published.",
    )
