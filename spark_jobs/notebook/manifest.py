"""The manifest of a slice: its pipeline, records, lookups and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tallyweir.sinks.postgres.tables.table_definition import TableDefinition
from tallyweir.sinks.protocol.batch_run import BatchRun, RunInput
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

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
    """

    pipeline: str
    pipeline_file: str
    definition_hash: str
    captured_at: str
    ranges: tuple[CapturedRange, ...]
    lookups: tuple[CapturedLookup, ...]
    tables: Mapping[str, tuple[TableDefinition, ...]]
    run: BatchRun | None = None

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
    )
