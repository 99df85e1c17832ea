"""Runs one case: makes a slice of its records, and publishes that as a driver would."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tallyweir.schemas.pipeline import Pipeline, definition_hash
from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.sinks.postgres.audit.why.slice_results import Position, SliceResults
from tallyweir.sinks.postgres.schema.scratch_database import ScratchDatabase
from tallyweir.sinks.postgres.tables.lookup_table import (
    LookupTable,
    create_lookup_table,
    read_lookup_table,
)
from tallyweir.spark_jobs.check.check_file import Case, GivenLookup
from tallyweir.spark_jobs.frame.lookup_rows import (
    VALID_FROM,
    VALID_UNTIL,
    copied_columns,
)
from tallyweir.spark_jobs.notebook.captured_slice import (
    RECORDS,
    CapturedLookup,
    CapturedRange,
    SliceManifest,
    open_slice,
)
from tallyweir.spark_jobs.tables.scratch_home import scratch_server

#: As Spark's Kafka source gives records.
_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    ]
)
_TOPIC_ID = "check"
_LOOKUP = "lookup"


def positions(case: Case) -> list[Position]:
    """Return the positions of a case's records, in its order."""
    ends: Counter[tuple[str, int]] = Counter()
    found = []
    for record in case.records:
        place = record.topic, record.partition
        found.append(Position(*place, ends[place]))
        ends[place] += 1
    return found


def run_case(
    case: Case, pipeline: Pipeline, pipeline_file: Path, directory: Path
) -> SliceResults:
    """Publish the records of a case as the first batch of its pipeline.

    Args:
        case: The case.
        pipeline: The pipeline.
        pipeline_file: The file of the pipeline.
        directory: An empty directory for the slice.

    Raises:
        TallyweirError: As a driver, or Postgres does not read a lookup's values.
    """
    records = _records(case)
    pq.write_table(records, directory / RECORDS)
    lookups = tuple(_write_lookups(case, pipeline, directory))
    manifest = SliceManifest(
        pipeline=pipeline.name,
        pipeline_file=os.path.relpath(pipeline_file, directory),
        definition_hash=definition_hash(pipeline),
        captured_at=case.name,
        ranges=tuple(_ranges(case)),
        lookups=lookups,
        tables={},
    )
    manifest.write(directory)
    with open_slice(directory).stages() as stages:
        return stages.publish().results


def _records(case: Case) -> pa.Table:
    rows = [
        {
            **at._asdict(),
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": [
                {"key": name, "value": value} for name, value in record.headers.items()
            ],
        }
        for at, record in zip(positions(case), case.records, strict=True)
    ]
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    return pa.Table.from_pylist(rows, _SCHEMA).sort_by(order)


def _ranges(case: Case) -> Iterator[CapturedRange]:
    counts = Counter((record.topic, record.partition) for record in case.records)
    for (topic, partition), count in sorted(counts.items()):
        yield CapturedRange(
            topic=topic,
            topic_id=_TOPIC_ID,
            partition=partition,
            from_offset=0,
            until_offset=count,
            records=count,
        )


def _write_lookups(
    case: Case, pipeline: Pipeline, directory: Path
) -> Iterator[CapturedLookup]:
    for number, enrichment in enumerate(pipeline.enrich):
        given = case.lookups[enrichment.table or enrichment.topic or ""]
        copy = _read_lookup(given, enrichment)
        file = f"lookup_{number}.parquet"
        pq.write_table(copy.rows, directory / file)
        yield CapturedLookup(
            label=enrichment.label,
            columns=copied_columns(enrichment),
            version=copy.version,
            file=file,
        )


def _read_lookup(given: GivenLookup, enrichment: Enrichment) -> LookupTable:
    """Put the rows into a table, and read that as a driver reads a lookup."""
    with ScratchDatabase(scratch_server(os.environ)) as scratch:
        create_lookup_table(scratch.dsn, _LOOKUP, given.columns, given.rows)
        return read_lookup_table(
            scratch.dsn,
            _LOOKUP,
            copied_columns(enrichment),
            endless=(VALID_FROM, VALID_UNTIL),
        )
