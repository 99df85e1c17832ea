"""A pipeline's state in the home: positions, watermark, newest claim, decisions.

Drivers read it as ``Progress``; drivers and the resolver read decisions on branches by
the port ``DecisionLedger``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.epoch_claims import check_not_discarded
from tallyweir.sinks.postgres.server.connection import DatabaseLink
from tallyweir.sinks.postgres.server.instants import to_microseconds
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.batch_run import streamed
from tallyweir.sinks.protocol.decisions import claim_lost
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId, InDoubtFacts
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import Progress
from tallyweir.sinks.protocol.recovery import StoredPosition
from tallyweir.sinks.protocol.watermark import PartitionClock

_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")
_CLAIM = load_statements("tallyweir.sinks.postgres.ledger", "claim.sql")

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


def read_fingerprint_key(connection: _Connection) -> bytes:
    """Return the installation's secret for fingerprints, 16 bytes."""
    with translated("reading the installation's key"):
        row = connection.execute(_CLAIM["fingerprint_key"]).fetchone()
        connection.rollback()
    assert row is not None, "a migrated database has exactly one installation"
    return bytes(row[0])


def read_decided(
    connection: _Connection, pipeline: str, branches: Sequence[str]
) -> dict[str, GlobalId]:
    """Read the newest decision of each branch that has one, by the branch's name."""
    rows = connection.execute(
        _PUBLISH["newest_decisions"], {"pipeline": pipeline, "branches": list(branches)}
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
    row = connection.execute(_PUBLISH[first], values).fetchone()
    if row is None:
        check_not_discarded(connection, pipeline)
        raise claim_lost(f"Pipeline {pipeline} is not registered any more.")
    watermark, last_sequence = row
    # A separate statement, after the lock is held: READ COMMITTED gives it a snapshot
    # with every claim made before.
    newest = connection.execute(_CLAIM["newest_epoch"], values).fetchone()
    epoch, nonce = newest or (0, None)
    positions: dict[TopicPartition, StoredPosition] = {}
    clocks: dict[TopicPartition, PartitionClock] = {}
    for line in connection.execute(_PUBLISH["read_positions"], values):
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


_DECISIONS = load_statements("tallyweir.sinks.postgres.ledger", "decisions.sql")


class PostgresDecisionLedger:
    """The ``DecisionLedger`` port.

    Args:
        link: The link to the home database.
        pipeline: A pipeline that is registered there, with at least one claim.
    """

    def __init__(self, link: DatabaseLink, pipeline: str) -> None:
        self._link = link
        self._pipeline = pipeline

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        """Read claim and decisions under the lock of the pipeline's row.

        Raises:
            FatalError: ``CLAIM_LOST``: the database does not know the pipeline.
            RetryableError: The server is unreachable, read-only, or a publish
                transaction does not end.
        """

        def read(connection: psycopg.Connection[TupleRow]) -> InDoubtFacts:
            values = {
                "pipeline": self._pipeline,
                "gids": [str(gid) for gid in gids],
            }
            connection.execute(_PUBLISH["begin_settings"])
            connection.execute(_PUBLISH["lock_pipeline"], values)
            # Separate statements, after the lock is held, see all that is committed
            # until now.
            row = connection.execute(_DECISIONS["newest_claim"], values).fetchone()
            if row is None:
                raise claim_lost(f"Pipeline {self._pipeline} is not registered.")
            installation, pipeline_number, epoch, nonce = row
            decided = connection.execute(_DECISIONS["decided_among"], values).fetchall()
            unresolved = connection.execute(_DECISIONS["unresolved"], values).fetchall()
            return InDoubtFacts(
                newest=EpochClaim(
                    installation=installation,
                    pipeline_number=pipeline_number,
                    epoch=Epoch(epoch),
                    nonce=nonce,
                ),
                decided=frozenset(read_global_id(gid) for (gid,) in decided),
                unresolved=frozenset(read_global_id(gid) for (gid,) in unresolved),
            )

        return self._link.run("reading the decisions", read)

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        """Let readers of several databases see the batches of some branches.

        Crash:
            The next driver or resolver finds the branches committed, and notes them.
        """

        def note(connection: psycopg.Connection[TupleRow]) -> None:
            # A lost note costs a read of the markers, so this need not wait for the
            # disk.
            connection.execute("SET LOCAL synchronous_commit = off")
            connection.execute(
                _DECISIONS["note_committed"],
                {
                    "pipeline": self._pipeline,
                    "gids": [str(gid) for gid in branches],
                },
            )

        self._link.run("recording committed branches", note)
