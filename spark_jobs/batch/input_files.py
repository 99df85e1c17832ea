"""The files of a run: their names, their content, and how they are split.

Each file is read once before Spark starts. This gives its checksum, which tells a
repeated run from one with other input, and the places where tasks begin.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallyweir.schemas.contract import Contract
from tallyweir.sinks.protocol.batch_run import RunInput
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.batch.file_chunk import FileChunk, FileForm
from tallyweir.spark_jobs.batch.record_files import split_avro_file, split_parquet_file
from tallyweir.spark_jobs.batch.text_files import split_text_file

_FORMS = {form.value: form for form in FileForm} | {".ndjson": FileForm.JSON_LINES}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One file at the start of the run.

    Attributes:
        path: Path of the file.
        partition: Its index among the files of the run.
        checksum: SHA-256 of its bytes in hex.
        until_offset: One more than the number of its last line or row.
        chunks: Chunks that cover each row once.
        version: Size and time of change; differs if the file was written to since.
    """

    path: Path
    partition: int
    checksum: str
    until_offset: int
    chunks: tuple[FileChunk, ...]
    version: tuple[int, int]

    @property
    def as_input(self) -> RunInput:
        return RunInput(
            partition=self.partition, name=self.path.name, checksum=self.checksum
        )

    def check_unchanged(self) -> None:
        """Check that the file has not changed since the run began.

        Raises:
            ConfigurationError: ``INPUT_CHANGED``.
        """
        if _version(self.path) != self.version:
            raise ConfigurationError(
                "INPUT_CHANGED",
                saw=f"{self.path} was written to while the run read it.",
                why="The run may have read a mix of the old and the new content.",
                fix="Run again when the file is complete; nothing was published.",
            )


def read_input_files(paths: Sequence[Path], contract: Contract) -> list[InputFile]:
    """Check every file of a run, in the given order.

    A path that is no file and has a pattern's characters stands for the matching files,
    ordered by path.

    Raises:
        ConfigurationError: ``INPUT_TWICE``; or ``INPUT_FORM``, ``INPUT_MISSING``,
            ``INPUT_EMPTY``, ``INPUT_COLUMN`` or ``INPUT_MALFORMED``: a file cannot be
            read at all. A row that does not fit raises no error; it becomes a dead
            letter.
        ContractError: The schema of an Avro file allows what could kill a decoder.
    """
    found = [file for path in paths for file in _files_of(path)]
    _check_distinct(found)
    return [
        _read_input_file(path, partition, contract)
        for partition, path in enumerate(found)
    ]


def _files_of(path: Path) -> Iterator[Path]:
    if path.exists() or not glob.has_magic(str(path)):
        yield path
        return
    # A pattern that matches nothing is reported as a missing file.
    yield from map(Path, sorted(glob.iglob(str(path))) or [str(path)])  # noqa: PTH207 - it may be absolute


def _check_distinct(paths: Sequence[Path]) -> None:
    seen: dict[Path, Path] = {}
    for path in paths:
        former = seen.setdefault(path.resolve(), path)
        if former is not path:
            raise ConfigurationError(
                "INPUT_TWICE",
                saw=f"{path} is {former}, which is an input already.",
                why="The run would read each of its rows twice.",
                fix="Name it once; two patterns may match the same file.",
            )


def _read_input_file(path: Path, partition: int, contract: Contract) -> InputFile:
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise ConfigurationError(
            "INPUT_FORM",
            saw=f"The input is {str(path)!r}.",
            why="The file's ending says how to read it.",
            fix=f"Use a file that ends in {', '.join(_FORMS)}.",
        )
    try:
        version = _version(path)
        checksum = _checksum(path)
        chunks, until_offset = _split(path, partition, form, contract)
    except OSError as exc:
        raise ConfigurationError(
            "INPUT_MISSING",
            saw=f"{path} cannot be read ({exc.strerror}).",
            why="The file holds the events.",
            fix="Correct the path.",
        ) from exc
    return InputFile(
        path=path,
        partition=partition,
        checksum=checksum,
        until_offset=until_offset,
        chunks=tuple(chunks),
        version=version,
    )


def _split(
    path: Path, partition: int, form: FileForm, contract: Contract
) -> tuple[list[FileChunk], int]:
    match form:
        case FileForm.PARQUET:
            return split_parquet_file(path, partition, contract)
        case FileForm.AVRO:
            return split_avro_file(path, partition)
        case FileForm.CSV | FileForm.JSON_LINES:
            return split_text_file(path, partition, form, contract)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
