"""A slice in its directory: its manifest and its records, which need no server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.sinks.postgres.audit.why.slice_results import TableRows
from tallyweir.sinks.postgres.tables.table_definition import TableDefinition
from tallyweir.sinks.protocol.batch_run import BatchRun, RunInput
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.spark_jobs.frame.lookup_rows import copied_columns
from tallyweir.spark_jobs.frame.lookups import Reader

if TYPE_CHECKING:
    from tallyweir.spark_jobs.notebook.stages import Stages


MANIFEST = "slice.json"
RECORDS = "records.parquet"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRange:
    """Records of one partition; ``topic_id`` is Kafka's id of the topic."""

    topic: str
    topic_id: str
    partition: int
    from_offset: int
    until_offset: int
    records: int

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(
            topic_partition=TopicPartition(self.topic, self.partition),
            from_offset=self.from_offset,
            until_offset=self.until_offset,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedLookup:
    """A captured lookup; ``columns`` maps the copy's columns to the lookup's."""

    label: str
    columns: Mapping[str, str]
    version: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceManifest:
    """The description of a slice.

    Attributes:
        pipeline: Name of the pipeline.
        pipeline_file: Its file, relative to the directory of the slice.
        definition_hash: Definition hash of the pipeline at the capture.
        captured_at: Time of the capture by the machine's clock, in ISO 8601.
        ranges: Ranges of the records, in order of topic and partition.
        lookups: Lookups of the pipeline.
        tables: Existing result tables of the pipeline, by database.
        run: The batch run that a slice of files is read as; None for Kafka records.
        watermark: Where the watermark stands before the records, in ISO 8601; None for
            nowhere, as when a pipeline begins.
        schema: The contract's file, if it stands for one in a registry.
    """

    pipeline: str
    pipeline_file: str
    definition_hash: str
    captured_at: str
    ranges: tuple[CapturedRange, ...]
    lookups: tuple[CapturedLookup, ...]
    tables: Mapping[str, tuple[TableDefinition, ...]]
    run: BatchRun | None = None
    watermark: str | None = None
    schema: str | None = None

    @property
    def topic_ids(self) -> dict[str, str]:
        return {one.topic: one.topic_id for one in self.ranges}

    def write(self, directory: Path) -> None:
        """Write it as ``slice.json``."""
        run = self.run
        fields = asdict(self) | {
            "version": _VERSION,
            "run": run
            and {"name": run.name, "inputs": [asdict(i) for i in run.inputs]},
        }
        text = json.dumps(fields, indent=1, sort_keys=True)
        (directory / MANIFEST).write_text(f"{text}\n", "utf-8")

    @classmethod
    def read(cls, directory: Path) -> SliceManifest:
        """Read the manifest of a directory.

        Raises:
            ConfigurationError: ``SLICE_MISSING`` or ``SLICE_MALFORMED``.
        """
        path = directory / MANIFEST
        try:
            return _from_json(json.loads(path.read_text("utf-8")))
        except OSError as error:
            raise ConfigurationError(
                "SLICE_MISSING",
                saw=f"{path} cannot be read ({error.strerror}).",
                why="The manifest names the pipeline and the records of the slice.",
                fix="Name a directory that tallyweir notebook has created.",
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                "SLICE_MALFORMED",
                saw=f"{path} is not the manifest of a slice ({type(error).__name__}).",
                why="The manifest names the pipeline and the records of the slice.",
                fix="Capture the slice again with tallyweir notebook.",
            ) from error


def _from_json(fields: dict[str, Any]) -> SliceManifest:
    if fields.pop("version") != _VERSION:
        raise ValueError
    run = fields["run"]
    return SliceManifest(
        **fields
        | {
            "ranges": tuple(CapturedRange(**one) for one in fields["ranges"]),
            "lookups": tuple(CapturedLookup(**one) for one in fields["lookups"]),
            "tables": {
                database: tuple(map(_table_from_json, tables))
                for database, tables in fields["tables"].items()
            },
            "run": run
            and BatchRun(
                name=run["name"],
                inputs=tuple(RunInput(**one) for one in run["inputs"]),
            ),
        }
    )


def _table_from_json(fields: Mapping[str, Any]) -> TableDefinition:
    return TableDefinition(
        table=fields["table"],
        columns=tuple((name, text) for name, text in fields["columns"]),
        constraints=tuple((name, text) for name, text in fields["constraints"]),
        indexes=tuple(fields["indexes"]),
        left_out=tuple(fields["left_out"]),
        types=tuple((*one,) for one in fields.get("types", ())),
    )


@dataclass(frozen=True, kw_only=True)
class CapturedSlice:
    """Records of a topic, with lookups and tables as they were at the capture.

    Attributes:
        directory: Directory of the slice.
        manifest: Manifest of the slice.
    """

    directory: Path
    manifest: SliceManifest

    @property
    def pipeline_file(self) -> Path:
        """The pipeline's file, which may have changed since the capture."""
        return (self.directory / self.manifest.pipeline_file).resolve()

    @cached_property
    def table(self) -> pa.Table:
        """The records as Kafka has them, in the order of their positions."""
        return pq.read_table(self.directory / RECORDS)

    def records(self) -> pd.DataFrame:
        """Show the records as Kafka has them: keys, values and headers are bytes."""
        return as_frame(self.table)

    def ranges(self) -> pd.DataFrame:
        """Show the ranges of offsets in the slice."""
        return pd.DataFrame(
            [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "from_offset": one.from_offset,
                    "until_offset": one.until_offset,
                    "records": one.records,
                }
                for one in self.manifest.ranges
            ]
        )

    def stages(self) -> Stages:
        """Open the stages of the pipeline, as its file is now, over the slice.

        Raises:
            TallyweirError: As ``Stages``.
        """
        # Spark takes seconds to import, and the records need no Spark.
        from tallyweir.spark_jobs.notebook.stages import Stages  # noqa: PLC0415

        return Stages(self)

    def lookup_reader(self, enrichment: Enrichment) -> Reader:
        """Return a reader of a lookup as it was captured.

        Raises:
            ConfigurationError: ``SLICE_LACKS_LOOKUP``.
        """
        wanted = enrichment.label, copied_columns(enrichment)
        for lookup in self.manifest.lookups:
            if (lookup.label, dict(lookup.columns)) == wanted:
                return lambda: self._read_lookup(lookup)
        raise ConfigurationError(
            "SLICE_LACKS_LOOKUP",
            saw=f"The pipeline looks up {', '.join(enrichment.select.values())} in "
            f"{enrichment.label}, which the slice lacks.",
            why="A slice captures lookups with its records, and the pipeline has "
            "changed since.",
            fix="Capture the slice again with tallyweir notebook.",
        )

    def _read_lookup(self, lookup: CapturedLookup) -> tuple[pa.Table, str]:
        return pq.read_table(self.directory / lookup.file), lookup.version


def open_slice(directory: str | Path = ".") -> CapturedSlice:
    """Open the slice in a directory; this needs no server.

    Raises:
        ConfigurationError: ``SLICE_MISSING`` or ``SLICE_MALFORMED``.
    """
    path = Path(directory).absolute()
    return CapturedSlice(directory=path, manifest=SliceManifest.read(path))


def as_frame(table: pa.Table) -> pd.DataFrame:
    """Return a frame of an Arrow table; nullable integers stay integers."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def rows_as_frame(rows: TableRows) -> pd.DataFrame:
    """Return a frame of Postgres rows, ordered by key, with unchanged values."""
    order = [rows.columns.index(name) for name in rows.key]
    given = sorted(rows.rows, key=lambda row: [_comparable(row[n]) for n in order])
    return pd.DataFrame(given, columns=list(rows.columns), dtype=object)


def _comparable(value: object) -> tuple[bool, object]:
    """Return a sort key that puts nulls last."""
    return value is None, 0 if value is None else value
