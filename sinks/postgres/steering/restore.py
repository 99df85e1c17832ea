"""Takes a pipeline back to a snapshot, as if later batches had never been published.

Results, windows, state, IDs, side tables, ledger, positions and watermark go back in
one transaction, and the pipeline reads from Kafka again what was taken back.

The sequences of the removed batches are not used again. So nothing that relies on them
(relay, markers, staging, people's notes) takes a new batch for an old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import (
    LOCK_TIMEOUT_MS,
    Act,
    ActRequest,
    acting,
)
from tallyweir.sinks.postgres.steering.offset_reset import check_nothing_in_doubt
from tallyweir.sinks.postgres.steering.snapshot import (
    Snapshot,
    check_at_home,
    delete_snapshot,
    find_snapshot,
    read_snapshots,
)
from tallyweir.sinks.postgres.steering.taken_back import TakenBack
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables
from tallyweir.sinks.postgres.versions.pipeline_versions import recall_held
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import (
    BrokerPosition,
    StoredPosition,
    decide_start,
)

_SQL = load_statements("tallyweir.sinks.postgres.steering", "restore.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The effects of a restore.

    Attributes:
        after_sequence: The snapshot's batch, which is the last one that stays.
        through_sequence: The last batch that was taken back.
        batches: How many batches were taken back.
        records: How many records these had read.
        committed: How many of those had become results.
        rows: Rows that are gone, by table; rows that were put back are not counted.
        ids: Seen IDs that are forgotten.
        messages_sent: Messages of the outbox, taken back, that Kafka has already.
        dead_letters_sent: Dead letters, taken back, that Kafka has already.
        dropped: Snapshots of later batches, which are gone as well.
        positions: The next offset to read of each partition.
    """

    snapshot: str
    after_sequence: int
    through_sequence: int
    batches: int
    records: int
    committed: int
    rows: Mapping[str, int]
    ids: int
    messages_sent: int
    dead_letters_sent: int
    dropped: tuple[str, ...]
    positions: Mapping[str, int]


def restore(  # noqa: PLR0913 - an act and what it needs
    connection: Connection[TupleRow],
    pipeline: str,
    name: str,
    broker: Mapping[TopicPartition, BrokerPosition],
    *,
    reason: str,
    dry_run: bool = False,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> Restored:
    """Take a pipeline back to a snapshot, in one commit.

    A driver at work is fenced, drops its current batch whole, and reads from Kafka
    again what was taken back. The snapshot stays.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        name: The snapshot's name.
        broker: What the broker holds of the pipeline's topics.
        reason: Why, for people who ask later; kept permanently.
        dry_run: Do it and roll it back, to tell what it would mean.
        lock_timeout_ms: How long to wait for a publish or a snapshot under way.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``,
            ``SNAPSHOT_UNKNOWN``, ``NOT_AT_HOME``, ``TABLE_LOST``, ``DEFINITION_SINCE``,
            ``RESTORE_NOT_IN_KAFKA``, ``RESTORE_PAST_RUN``, ``RESTORE_PAST_ACT``, or
            ``RESTORE_PAST_RESTORE``.
        RetryableError: ``BATCH_IN_DOUBT``, ``SNAPSHOT_AT_WORK``; or a publish held the
            pipeline's row for too long.

    Crash:
        Before the COMMIT nothing has changed and no driver is fenced; after it the
        pipeline is where it was, and a repeated call takes nothing more back.
    """
    request = ActRequest(
        pipeline=pipeline,
        kind="restore",
        reason=reason,
        dry_run=dry_run,
        lock_timeout_ms=lock_timeout_ms,
    )
    with acting(connection, request, snapshots_of=(pipeline,)) as act:
        snapshot = find_snapshot(connection, pipeline, name)
        audited = read_pipeline(connection, pipeline)
        hold_tables(connection, audited, needs_all=True)
        _check(connection, audited, snapshot)
        positions = _check_in_kafka(connection, snapshot, broker)
        restored = _take_back(connection, audited, snapshot, act)
        restored = replace(
            restored,
            positions={str(place): offset for place, offset in positions.items()},
        )
        act.detail.update(asdict(restored))
    return restored


def _take_back(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    snapshot: Snapshot,
    act: Act,
) -> Restored:
    values = {"pipeline": pipeline.name, "sequence": snapshot.sequence}
    events = fetch_one(connection, _SQL["taken_events"], **values)
    letters = fetch_one(connection, _SQL["dead_letters_sent"], **values)["letters"]
    taken = TakenBack(connection, pipeline, snapshot)
    taken.run()
    later = [
        one
        for one in read_snapshots(connection, pipeline.name)
        if one.sequence > snapshot.sequence or one.move > snapshot.move
    ]
    for one in later:
        delete_snapshot(connection, one)
    recall_held(connection, pipeline.name, snapshot.epoch)
    connection.execute(
        _SQL["note_restore"],
        {
            **values,
            "epoch": act.epoch,
            "snapshot": snapshot.name,
            "through_sequence": act.last_sequence,
        },
    )
    return Restored(
        snapshot=snapshot.name,
        after_sequence=snapshot.sequence,
        through_sequence=act.last_sequence,
        **events,
        rows=dict(taken.rows),
        ids=taken.ids,
        messages_sent=taken.messages_sent,
        dead_letters_sent=letters,
        dropped=tuple(one.name for one in later),
        positions={},
    )


def _check(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, snapshot: Snapshot
) -> None:
    """Refuse a restore that could not take back everything."""
    check_nothing_in_doubt(connection, pipeline.name)
    check_at_home(pipeline)
    values = {"pipeline": pipeline.name, "sequence": snapshot.sequence}
    _check_stands(connection, snapshot, values)
    branches = fetch_one(connection, _SQL["batches_with_branches"], **values)
    if branches["branches"]:
        raise ConfigurationError(
            "NOT_AT_HOME",
            saw=f"{branches['branches']} branches brought rows of later batches into "
            "other databases.",
            why="A restore is one transaction of the home database and reaches no "
            "other.",
            fix="Restore all databases from their backups to one moment, and run "
            f"tallyweir repair {pipeline.name}.",
        )
    acts = fetch(
        connection,
        _SQL["acts_since"],
        pipeline=pipeline.name,
        epoch=snapshot.epoch,
    )
    if acts:
        (act,) = acts
        raise ConfigurationError(
            "RESTORE_PAST_ACT",
            saw=f"{act['kind']} was done at {act['done_at']}, after the snapshot.",
            why="Erased events would come back, and tables that were switched are "
            "not those of the snapshot.",
            fix="Restore a later snapshot, and drop this one, which may hold erased "
            f"events: tallyweir snapshot drop {pipeline.name} {snapshot.name}.",
        )
    row = fetch_one(connection, _SQL["definition"], pipeline=pipeline.name)
    if row["definition"] != snapshot.definition:
        raise ConfigurationError(
            "DEFINITION_SINCE",
            saw=f"The definition of pipeline {pipeline.name} has changed since the "
            f"snapshot {snapshot.name} was taken.",
            why="The open windows and the state in the snapshot may not fit the new "
            "definition.",
            fix="Run the pipeline's former version first, so that it is registered "
            "again; then restore.",
        )
    runs = fetch(connection, _SQL["unrestorable_runs"], **values)
    if runs:
        (run,) = runs
        raise ConfigurationError(
            "RESTORE_PAST_RUN",
            saw=f"The batch run {run['run']} came after the snapshot, with disposition "
            f"{run['disposition']}.",
            why="It deleted rows and IDs from before the snapshot, and no copy is "
            "kept.",
            fix="Restore a snapshot that was taken after the run, or restore the "
            "database from a backup.",
        )


def _check_stands(
    connection: Connection[TupleRow], snapshot: Snapshot, values: Mapping[str, object]
) -> None:
    """Refuse a snapshot of batches that are gone; a restore should have dropped it.

    Its positions lie after rows that were deleted, so no driver would read those again.
    """
    restores = fetch(
        connection,
        _SQL["restores_since"],
        epoch=snapshot.epoch,
        move=snapshot.move,
        **values,
    )
    if restores:
        (one,) = restores
        raise ConfigurationError(
            "RESTORE_PAST_RESTORE",
            saw=f"A later restore took back batches that the snapshot {snapshot.name} "
            f"includes; the last restore was to {one['snapshot']}, in act "
            f"{one['epoch']}.",
            why="The snapshot's positions are past rows that are gone, and the "
            "records of those rows would not be read again.",
            fix="Restore another snapshot, and drop this one: tallyweir snapshot "
            f"drop {values['pipeline']} {snapshot.name}.",
        )


def _check_in_kafka(
    connection: Connection[TupleRow],
    snapshot: Snapshot,
    broker: Mapping[TopicPartition, BrokerPosition],
) -> dict[TopicPartition, int]:
    """Refuse to take back what cannot be read again."""
    rows = fetch(
        connection,
        _SQL["stored_positions"].format(copy=snapshot.copy("partition_progress")),
    )
    stored = {
        TopicPartition(row["topic"], row["partition"]): StoredPosition(
            topic_id=row["topic_id"], next_offset=row["next_offset"]
        )
        for row in rows
    }
    try:
        decide_start(stored, broker)
    except ConfigurationError as error:
        raise ConfigurationError(
            "RESTORE_NOT_IN_KAFKA",
            saw=error.saw,
            why="The driver must read again what a restore takes back; without the "
            "records it would be lost.",
            fix="Restore a later snapshot, or leave the pipeline as it is.",
        ) from error
    return {place: one.next_offset for place, one in sorted(stored.items())}
