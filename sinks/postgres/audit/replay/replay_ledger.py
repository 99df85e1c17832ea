"""What the ledger says of the batches of a pipeline, for them to be computed again.

A batch is fixed by its ranges, its watermark and the database's clock at its planning.
What was decided by chance is in the ledger too: which copy of an ID came first, and
which rows a table refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.ledger.audited_pipeline import fetch
from sinks.postgres.server.instants import to_microseconds
from sinks.postgres.server.statements import load_statements
from sinks.protocol.batch_run import BatchRun, Disposition, RunInput
from sinks.protocol.offsets import OffsetRange, TopicPartition

_SQL = load_statements("sinks.postgres.audit.replay", "replay.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBatch:
    """A batch as the ledger has it.

    Attributes:
        ranges: Of one partition each; none for a tick.
        records: That it has read.
        lookups: Versions of what its events were enriched with.
        run: The batch run that it is.
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
    """An act that has erased something.

    Attributes:
        took_keys: Whether it took state of functions, of keys that nobody kept.
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
    """All that the ledger says, in one snapshot.

    Attributes:
        batches: In their order; numbers that a restore has left unused are missing.
        topic_ids: Kafka's, of the topics that were read.
        erased_conditions: Rows that were erased by a condition, by output.
    """

    batches: tuple[RecordedBatch, ...]
    topic_ids: Mapping[str, str]
    versions: tuple[RecordedVersion, ...]
    erasures: tuple[RecordedErasure, ...]
    erased_conditions: Mapping[str, int]


def read_recorded(
    connection: Connection[TupleRow], pipeline: str, topic_ids: Mapping[str, str]
) -> RecordedPipeline:
    """Read it, inside of the caller's snapshot."""
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
