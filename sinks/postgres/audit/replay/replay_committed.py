"""Reads the pipeline that is replayed: its ledger and its rows, at one moment.

A batch is fixed by its ranges, its watermark and the database's clock at its planning.
The ledger also has what was decided by chance: which copy of an ID came first, and
which rows a table refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    connect_databases,
    databases_of,
)
from tallyweir.sinks.postgres.audit.replay.replay_rows import Side
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.ledger.stored_state import read_fingerprint_key
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.instants import to_microseconds
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables
from tallyweir.sinks.protocol.batch_run import BatchRun, Disposition, RunInput
from tallyweir.sinks.protocol.errors import RetryableError
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


_LEDGER = load_statements("tallyweir.sinks.postgres.ledger", "ledger.sql")

#: How often to look for one moment of all databases, and the seconds between tries.
_TRIES = 60
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A pipeline as it was read at one moment.

    Attributes:
        side: Its databases, each in the snapshot of that moment.
        recorded: The contents of its ledger.
        tombstones: The tombstones of everything erased.
        sent: How many messages of its outbox were sent.
        fingerprint_key: The home's secret.
    """

    audited: AuditedPipeline
    side: Side
    recorded: RecordedPipeline
    tombstones: tuple[DictRow, ...]
    sent: int
    fingerprint_key: bytes


@contextmanager
def one_moment(
    home_dsn: str, pipeline: str, databases: Mapping[str, str]
) -> Iterator[Committed]:
    """Read a pipeline at a moment at which its databases hold the same batches.

    Args:
        home_dsn: Connection string of its home. Nothing is written anywhere.
        pipeline: The pipeline's name.
        databases: Connection strings of the other databases, by name.

    Raises:
        ConfigurationError: As ``read_pipeline`` and ``connect_databases`` do.
        RetryableError: ``REPLAY_UNSETTLED``, or a server does not respond.
    """
    waiting = threading.Event()
    with ExitStack() as opened:
        home = opened.enter_context(
            connect(home_dsn, application_name="tallyweir replay")
        )
        key = read_fingerprint_key(home)
        with snapshot(home, doing="looking for the pipeline's databases"):
            names = databases_of(read_pipeline(home, pipeline))
        parts = connect_databases(opened, home, names, databases)
        for _ in range(_TRIES):
            with snapshot(home, doing="reading the pipeline"), ExitStack() as beside:
                audited = read_pipeline(home, pipeline)
                beside.enter_context(parts.snapshots(audited))
                connections = {
                    name: one.connection for name, one in parts.by_name.items()
                }
                if _is_one_moment(audited, connections):
                    yield _read(audited, connections, key)
                    return
            waiting.wait(_PAUSE_S)
    raise RetryableError(
        "REPLAY_UNSETTLED",
        saw=f"In {_TRIES} tries, the databases of pipeline {pipeline} never held the "
        "same batches.",
        why="The replay would be compared with batches that are only partly committed.",
        fix=f"Pause the pipeline while it is read: tallyweir pause {pipeline}.",
    )


def _is_one_moment(
    audited: AuditedPipeline, connections: Mapping[str, Connection[TupleRow]]
) -> bool:
    home = connections[HOME]
    of_pipeline = {"pipeline": audited.name}
    if fetch_one(home, _SQL["unresolved"], **of_pipeline)["branches"]:
        return False
    marked = {"installation": audited.installation, "number": audited.number}
    newest = [
        fetch_one(connection, _SQL["newest_markers"], **marked)["sequence"]
        for name, connection in connections.items()
        if name != HOME
    ]
    return max(newest, default=0) <= audited.last_sequence


def _read(
    audited: AuditedPipeline,
    connections: Mapping[str, Connection[TupleRow]],
    fingerprint_key: bytes,
) -> Committed:
    home, name = connections[HOME], audited.name
    ids = fetch(home, _LEDGER["topic_ids"], pipeline=name)
    recorded = read_recorded(home, name, {row["topic"]: row["topic_id"] for row in ids})
    return Committed(
        audited=audited,
        side=Side(
            is_replayed=False,
            databases=connections,
            pipeline=name,
            number=audited.number,
            installation=audited.installation,
            own=read_shadow_tables(home, name),
        ),
        recorded=recorded,
        tombstones=tuple(fetch(home, _SQL["tombstones"], pipeline=name)),
        sent=fetch_one(home, _SQL["sent_messages"], pipeline=name)["sent"],
        fingerprint_key=fingerprint_key,
    )
