"""Runs one case: makes a slice of its records, and publishes that as a driver would."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tallyweir.schemas.pipeline import Pipeline, definition_hash
from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.sinks.postgres.audit.why.slice_results import Position
from tallyweir.sinks.postgres.schema.scratch_database import ScratchDatabase
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.tables.lookup_table import (
    LookupTable,
    create_lookup_table,
    read_lookup_table,
)
from tallyweir.sinks.postgres.tables.table_definition import (
    TableDefinition,
    define_tables,
)
from tallyweir.spark_jobs.check.check_file import Case, CheckFile, GivenLookup
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
from tallyweir.spark_jobs.notebook.dry_publish import DryPublish
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


Tables = Mapping[str, tuple[TableDefinition, ...]]


def define_own_tables(checked: CheckFile) -> Tables:
    """Return the definitions of the tables of the user's own, by database.

    Raises:
        ConfigurationError: ``TABLES_NOT_CREATED``.
    """
    if checked.tables is None:
        return {}
    outputs = [one for one in checked.pipeline.outputs if one.has_table]
    with ScratchDatabase(scratch_server(os.environ)) as scratch:
        found = define_tables(
            scratch.dsn,
            checked.tables.read_text("utf-8"),
            [one.table for one in outputs],
        )
    return {
        database: tuple(
            one
            for one in found
            if any(o.table == one.table and database in o.databases for o in outputs)
        )
        for database in (HOME, *checked.pipeline.written_databases)
    }


def run_case(
    case: Case, checked: CheckFile, tables: Tables, pipeline_file: Path, directory: Path
) -> DryPublish:
    """Publish the records of a case as the first batch of its pipeline.

    Args:
        case: The case.
        checked: Its file.
        tables: As ``define_own_tables`` returns it.
        pipeline_file: The file of the pipeline.
        directory: An empty directory for the slice.

    Raises:
        TallyweirError: As a driver, or Postgres does not read a lookup's values.
    """
    pipeline = checked.pipeline
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
        tables=tables,
        watermark=None if case.watermark is None else case.watermark.isoformat(),
        schema=checked.schema,
    )
    manifest.write(directory)
    with open_slice(directory).stages() as stages:
        return stages.publish()


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
