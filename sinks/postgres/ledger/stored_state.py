"""Reads a pipeline's state in the home database: positions, watermark, newest claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.registration import check_not_discarded
from tallyweir.sinks.postgres.server.instants import to_microseconds
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.batch_run import streamed
from tallyweir.sinks.protocol.decisions import claim_lost
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import GlobalId
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import Progress
from tallyweir.sinks.protocol.recovery import StoredPosition
from tallyweir.sinks.protocol.watermark import PartitionClock

_SQL = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_CLAIM_SQL = load_statements("tallyweir.sinks.postgres.ledger", "claim.sql")

_Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The pipeline's state in the database, read under its lock."""

    progress: Progress
    #: Nonce of the newest claim; None without a claim.
    nonce: str | None


def read_stored_progress(connection: _Connection, pipeline: str) -> Progress:
    """Read where the pipeline stands, without locking it."""
    return _read(connection, pipeline, "read_watermark").progress


def lock_stored_state(connection: _Connection, pipeline: str) -> StoredState:
    """Lock the pipeline's row, then read; no other driver can publish until the end.

    It waits while another driver of the pipeline publishes.
    """
    return _read(connection, pipeline, "lock_pipeline")


def read_decided(
    connection: _Connection, pipeline: str, branches: Sequence[str]
) -> dict[str, GlobalId]:
    """Read the newest decision of each branch that has one, by the branch's name."""
    rows = connection.execute(
        _SQL["newest_decisions"], {"pipeline": pipeline, "branches": list(branches)}
    )
    gids = [read_global_id(row[0]) for row in rows]
    return {gid.branch: gid for gid in gids}


def read_global_id(text: str) -> GlobalId:
    """Read a global id that our own tables hold."""
    gid = GlobalId.parse(text)
    assert gid is not None, f"the ledger holds a global id of an unknown form: {text!r}"
    return gid


def _read(connection: _Connection, pipeline: str, first: str) -> StoredState:
    values = {"pipeline": pipeline}
    row = connection.execute(_SQL[first], values).fetchone()
    if row is None:
        check_not_discarded(connection, pipeline)
        raise claim_lost(f"Pipeline {pipeline} is not registered any more.")
    watermark, last_sequence = row
    # A separate statement, after the lock is held: READ COMMITTED gives it a snapshot
    # with every claim made before.
    newest = connection.execute(_CLAIM_SQL["newest_epoch"], values).fetchone()
    epoch, nonce = newest or (0, None)
    positions: dict[TopicPartition, StoredPosition] = {}
    clocks: dict[TopicPartition, PartitionClock] = {}
    for line in connection.execute(_SQL["read_positions"], values):
        topic, partition, topic_id, next_offset, event_time_max, active_at = line
        topic_partition = TopicPartition(topic, partition)
        positions[topic_partition] = StoredPosition(
            topic_id=topic_id, next_offset=next_offset
        )
        clocks[topic_partition] = PartitionClock(
            event_time_max_us=to_microseconds(event_time_max),
            active_at_us=to_microseconds(active_at),
        )
    progress = Progress(
        positions=positions,
        watermark_us=to_microseconds(watermark),
        last_sequence=SequenceNumber(last_sequence),
        newest_epoch=Epoch(epoch),
        clocks=streamed(clocks),
    )
    return StoredState(progress=progress, nonce=nonce)
