"""Files as a Spark source: rows become records as a producer would have sent them.

The process reads each file once before Spark starts. This gives its checksum, which
tells a repeated run from one with other input, and the places where tasks begin.

The task encodes a row by its contract. So the pipeline reads it like a Kafka record,
and the hash of its payload equals that of the same event in the stream. A row that does
not fit keeps its bytes and the reason, and becomes a dead letter.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP
from tallyweir.sinks.protocol.batch_run import RunInput
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.batch.file_chunk import FileChunk, FileForm, FileRow
from tallyweir.spark_jobs.batch.record_files import (
    read_avro_rows,
    read_parquet_rows,
    split_avro_file,
    split_parquet_file,
)
from tallyweir.spark_jobs.batch.text_files import read_text_rows, split_text_file
from tallyweir.spark_jobs.batches.prepared_pipeline import PipelineFiles
from tallyweir.spark_jobs.source import event_columns as named

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


_ROWS_PER_BATCH = 2_000

_COLUMNS = (
    "partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    f"{named.ORIGINAL} binary, {named.MISFIT} string"
)
_READERS = {
    FileForm.CSV: read_text_rows,
    FileForm.JSON_LINES: read_text_rows,
    FileForm.PARQUET: read_parquet_rows,
    FileForm.AVRO: read_avro_rows,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files that executors read under the same paths; see ``BoundedInput``."""

    files: tuple[InputFile, ...]
    contract: Contract

    @property
    def inputs(self) -> tuple[RunInput, ...]:
        """Its inputs, one for each partition of the run's topic."""
        return tuple(file.as_input for file in self.files)

    @property
    def until_offsets(self) -> tuple[int, ...]:
        """One more than the last offset of each input, in order."""
        return tuple(file.until_offset for file in self.files)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return its records, in the columns of Spark's Kafka source."""
        chunks = tuple(chunk for file in self.files for chunk in file.chunks)
        tasks = spark.range(0, len(chunks), 1, max(1, len(chunks)))
        return tasks.mapInArrow(_ReadChunks(chunks, self.contract), _COLUMNS)

    def check_unchanged(self) -> None:
        """Check that the input has not changed since the run began.

        Raises:
            ConfigurationError: The input has changed; nothing was published.
        """
        for file in self.files:
            file.check_unchanged()


def read_rows(chunk: FileChunk, contract: Contract) -> Iterator[FileRow]:
    """Yield the rows of a chunk in order; a row that does not fit says why."""
    return _READERS[chunk.form](chunk, contract)


def open_files(files: PipelineFiles, paths: Sequence[Path]) -> FileSource:
    """Check the files of a run, in the given order.

    Raises:
        ConfigurationError: ``RUN_WITHOUT_IDS``, ``RUN_WITHOUT_TIMES``,
            ``RUN_SEVERAL_CONTRACTS``, or as ``read_input_files``.
    """
    source = files.pipeline.source
    fields = {one.name for one in files.contracts.payload_fields}
    if not source.id_columns or not fields.issuperset(source.id_columns):
        raise ConfigurationError(
            "RUN_WITHOUT_IDS",
            saw=f"The pipeline takes the event ID from {source.id_place}.",
            why="A row of a file has no key, no headers and no such position, and "
            "without an ID the run could not notice repeats.",
            fix="Use a field as the pipeline's event_id.",
        )
    if files.contracts.key is not None and not files.contracts.key.may_lack:
        raise ConfigurationError(
            "RUN_WITHOUT_KEYS",
            saw="The pipeline's key has columns that are not null.",
            why="A row of a file has no key.",
            fix="Take not null from source.key, if a record may lack a key.",
        )
    if files.pipeline.source.event_time == KAFKA_TIMESTAMP:
        raise ConfigurationError(
            "RUN_WITHOUT_TIMES",
            saw="The pipeline takes the event time from Kafka's timestamp.",
            why="A row of a file has none.",
            fix="Use a field as the pipeline's event_time.",
        )
    contract, *others = (one.contract for one in files.contracts.each)
    if others:
        raise ConfigurationError(
            "RUN_SEVERAL_CONTRACTS",
            saw=f"The pipeline reads {contract.reference} and "
            f"{', '.join(other.reference for other in others)}.",
            why="A row of a file does not say which contract it follows.",
            fix="Send the rows to Kafka, each file with tallyweir emit --schema.",
        )
    found = read_input_files(paths, contract)
    return FileSource(files=tuple(found), contract=contract)


@dataclass(frozen=True, slots=True)
class _ReadChunks:
    """The work of a task; Spark sends it to the executors."""

    chunks: tuple[FileChunk, ...]
    contract: Contract

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                chunk = self.chunks[number]
                rows = read_rows(chunk, self.contract)
                while some := list(islice(rows, _ROWS_PER_BATCH)):
                    yield _as_batch(chunk.partition, some)


def _as_batch(partition: int, rows: Sequence[FileRow]) -> pa.RecordBatch:
    numbers, originals, values, misfits = zip(*rows, strict=True)
    nothing = [None] * len(rows)
    columns = {
        "partition": pa.array([partition] * len(rows), pa.int32()),
        "offset": pa.array(numbers, pa.int64()),
        "timestamp": pa.array(nothing, pa.timestamp("us", "UTC")),
        "key": pa.array(nothing, pa.binary()),
        "value": pa.array(values, pa.binary()),
        named.ORIGINAL: pa.array(originals, pa.binary()),
        named.MISFIT: pa.array(misfits, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)
