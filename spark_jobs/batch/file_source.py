"""Files as a Spark source: rows become records as a producer would have sent them.

The task encodes a row by its contract. So the pipeline reads it like a Kafka record,
and the hash of its payload equals that of the same event in the stream. A row that does
not fit keeps its bytes and the reason, and becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.pipeline import HeaderId
from tallyweir.sinks.protocol.batch_run import RunInput
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.batch.file_chunk import FileChunk, FileForm, FileRow
from tallyweir.spark_jobs.batch.input_files import InputFile, read_input_files
from tallyweir.spark_jobs.batch.record_files import read_avro_rows, read_parquet_rows
from tallyweir.spark_jobs.batch.text_files import read_text_rows
from tallyweir.spark_jobs.batches.prepared_pipeline import PipelineFiles
from tallyweir.spark_jobs.source import event_columns as named

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
        return tuple(file.as_input for file in self.files)

    @property
    def until_offsets(self) -> tuple[int, ...]:
        return tuple(file.until_offset for file in self.files)

    def read(self, spark: SparkSession) -> DataFrame:
        chunks = tuple(chunk for file in self.files for chunk in file.chunks)
        tasks = spark.range(0, len(chunks), 1, max(1, len(chunks)))
        return tasks.mapInArrow(_ReadChunks(chunks, self.contract), _COLUMNS)

    def check_unchanged(self) -> None:
        for file in self.files:
            file.check_unchanged()


def read_rows(chunk: FileChunk, contract: Contract) -> Iterator[FileRow]:
    """Yield the rows of a chunk in order; a row that does not fit says why."""
    return _READERS[chunk.form](chunk, contract)


def open_files(files: PipelineFiles, paths: Sequence[Path]) -> FileSource:
    """Check the files of a run, in the given order.

    Raises:
        ConfigurationError: ``RUN_WITHOUT_IDS``, ``RUN_SEVERAL_CONTRACTS``, or as
            ``read_input_files``.
    """
    event_id = files.pipeline.source.event_id
    if isinstance(event_id, HeaderId):
        raise ConfigurationError(
            "RUN_WITHOUT_IDS",
            saw=f"The pipeline takes the event ID from the header {event_id.header!r}.",
            why="A row of a file has no headers, and without an ID the run could not "
            "notice repeats.",
            fix="Use a field as the pipeline's event_id.",
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
