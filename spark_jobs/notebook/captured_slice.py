"""A slice in its directory, which needs no server to be read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.frame.lookup_rows import copied_columns
from tallyweir.spark_jobs.frame.lookups import Reader
from tallyweir.spark_jobs.notebook.manifest import (
    RECORDS,
    CapturedLookup,
    SliceManifest,
)
from tallyweir.spark_jobs.notebook.shown_table import as_frame

if TYPE_CHECKING:
    from tallyweir.spark_jobs.notebook.stages import Stages


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
