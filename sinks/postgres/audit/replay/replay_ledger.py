"""Reads the batches of a pipeline from the ledger, to compute them again.

A batch is fixed by its ranges, its watermark and the database's clock at its planning.
The ledger also has what was decided by chance: which copy of an ID came first, and
which rows a table refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch
from tallyweir.sinks.postgres.server.instants import to_microseconds
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.batch_run import BatchRun, Disposition, RunInput
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition

_SQL = load_statements("tallyweir.sinks.postgres.audit.replay", "replay.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBatch:
    """A batch as the ledger records it.

    Attributes:
        ranges: One range per partition; empty for a tick.
        records: How many records it read.
        lookups: Versions of the lookups that enriched its events.
        run: The batch run that published it, if any.
    """

    sequence: int
    epoch: int
    ranges: tuple[OffsetRange, ...]
    records: int
    watermark_before_us: int | None
    watermark_after_us: int | None
    planned_at_us: int
    lookups: Mapping[str, str]
    run: BatchRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedErasure:
    """An act that erased something.

    Attributes:
        took_keys: Whether it erased state of functions; the keys were not recorded.
    """

    epoch: int
    took_keys: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedVersion:
    """A version of the pipeline, and the last batch before it."""

    version: int
    definition_hash: str
    from_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPipeline:
    """Everything that a replay needs from the ledger, in one snapshot.

    Attributes:
        batches: In order; sequences that a restore left unused are missing.
        topic_ids: Kafka's IDs of the topics that were read.
        erased_conditions: How many rows a condition erased, by output.
    """

    batches: tuple[RecordedBatch, ...]
    topic_ids: Mapping[str, str]
    versions: tuple[RecordedVersion, ...]
    erasures: tuple[RecordedErasure, ...]
    erased_conditions: Mapping[str, int]


def read_recorded(
    connection: Connection[TupleRow], pipeline: str, topic_ids: Mapping[str, str]
) -> RecordedPipeline:
    """Read the ledger, inside the caller's snapshot."""
    ranges = {
        sequence: [
            (
                OffsetRange(
                    topic_partition=TopicPartition(row["topic"], row["partition"]),
                    from_offset=row["from_offset"],
                    until_offset=row["until_offset"],
                ),
                row["read"],
            )
            for row in rows
        ]
        for sequence, rows in groupby(
            fetch(connection, _SQL["recorded_ranges"], pipeline=pipeline),
            key=itemgetter("sequence"),
        )
    }
    inputs = {
        run: tuple(
            RunInput(
                partition=row["partition"], name=row["name"], checksum=row["checksum"]
            )
            for row in rows
        )
        for run, rows in groupby(
            fetch(connection, _SQL["run_inputs"], pipeline=pipeline),
            key=itemgetter("run"),
        )
    }
    batches = [
        RecordedBatch(
            sequence=row["sequence"],
            epoch=row["epoch"],
            ranges=tuple(one for one, _ in ranges.get(row["sequence"], ())),
            records=sum(read for _, read in ranges.get(row["sequence"], ())),
            watermark_before_us=to_microseconds(row["watermark_before"]),
            watermark_after_us=to_microseconds(row["watermark_after"]),
            planned_at_us=to_microseconds(row["planned_at"]),
            lookups=row["lookups"],
            run=None
            if row["run"] is None
            else BatchRun(
                name=row["run"],
                inputs=inputs.get(row["run"], ()),
                disposition=Disposition(row["disposition"]),
            ),
        )
        for row in fetch(connection, _SQL["recorded_batches"], pipeline=pipeline)
    ]
    versions = fetch(connection, _SQL["versions"], pipeline=pipeline)
    erasures = fetch(connection, _SQL["erasures"], pipeline=pipeline)
    conditions = fetch(connection, _SQL["erased_conditions"], pipeline=pipeline)
    return RecordedPipeline(
        batches=tuple(batches),
        topic_ids=topic_ids,
        versions=tuple(RecordedVersion(**row) for row in versions),
        erasures=tuple(RecordedErasure(**row) for row in erasures),
        erased_conditions={row["output_table"]: row["rows"] for row in conditions},
    )
