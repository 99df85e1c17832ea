"""Takes a pipeline back to a snapshot, as if later batches had never been published.

Results, windows, state, IDs, side tables, ledger, positions and watermark go back in
one transaction, and the pipeline reads from Kafka again what was taken back.

The sequences of the removed batches are not used again. So nothing that relies on them
(relay, markers, staging, people's notes) takes a new batch for an old one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
)
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.naming import revisions_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import (
    LOCK_TIMEOUT_MS,
    Act,
    ActRequest,
    acting,
)
from tallyweir.sinks.postgres.steering.offset_reset import check_nothing_in_doubt
from tallyweir.sinks.postgres.steering.snapshot import (
    KEPT_BY_PIPELINE,
    Snapshot,
    WindowCopies,
    check_at_home,
    delete_snapshot,
    find_snapshot,
    held_windows,
    is_held,
    read_snapshots,
)
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables
from tallyweir.sinks.postgres.versions.pipeline_versions import recall_held
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import (
    BrokerPosition,
    StoredPosition,
    decide_start,
)
from tallyweir.sinks.seen_ids.chunk import Entries

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


_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")

#: Own tables in which each row is of one batch and goes with it; a test compares them
#: with the schema.
OF_BATCHES = (
    *("batch_partition", "batch_output", "batch_measures", "batch_branch", "batch_run"),
    *("sample", "dead_letter", "late_event", "expired_event", "duplicate_event"),
    *("filtered_event", "replaced_row", "outbox"),
)


class TakenBack:
    """Takes one pipeline back, in the caller's transaction, which holds its row.

    Args:
        connection: The connection of that transaction.
        pipeline: The pipeline as it is now.
        snapshot: The snapshot to go back to.

    Attributes:
        rows: Rows that were deleted and not put back, by table.
        ids: How many IDs are forgotten.
        messages_sent: Messages of the outbox that were taken back and are in Kafka.
    """

    def __init__(
        self,
        connection: Connection[TupleRow],
        pipeline: AuditedPipeline,
        snapshot: Snapshot,
    ) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._snapshot = snapshot
        self._values = {
            "pipeline": pipeline.name,
            "sequence": snapshot.sequence,
            "move": snapshot.move,
            "watermark": snapshot.watermark,
        }
        self.rows: Counter[str] = Counter()
        self.ids = 0
        self.messages_sent = 0

    def run(self) -> None:
        """Take everything back; the ledger last, because the rest is found by it.

        Raises:
            ConfigurationError: ``TABLE_LOST``, as ``held_windows`` does.
        """
        # A merge that ends meanwhile would bring IDs back, so wait for it. One that
        # ends later finds the catalog changed, and gives up.
        self._connection.execute(_PUBLISH["await_merge"], self._values)
        for output in self._pipeline.outputs:
            if output.kind.has_event_rows:
                self._delete("delete_appended", output.table)
            elif output.kind.has_batch_rows and self._exists(output.table):
                self._delete("delete_by_batch", output.table)
        for window in held_windows(
            self._connection,
            self._pipeline,
            self._snapshot.definition,
            self._snapshot.watermark,
        ):
            self._restore_window(window)
        self._forget_ids()
        for table in KEPT_BY_PIPELINE:
            target = sql.Identifier("tallyweir", table)
            self._execute("delete_of_pipeline", target=target)
            self._put_back(target, table)
        self._delete_ledger()
        self._count_messages()
        self._execute("set_watermark")

    def _restore_window(self, window: WindowCopies) -> None:
        gone = self._execute(
            "delete_unsettled", target=window.target, unsettled=window.unsettled
        )
        back = self._put_back(window.target, window.rows_copy)
        self.rows[window.table] += gone - back
        self._execute("delete_all", target=window.state)
        self._put_back(window.state, window.state_copy)
        revisions = revisions_table(window.table)
        if self._exists(revisions):
            self._delete("delete_revisions", revisions)

    def _forget_ids(self) -> None:
        """Forget the IDs of the batches; chunks keep the batch of each ID."""
        gone = self._connection.execute(_SQL["delete_runs"], self._values).fetchall()
        self.ids += sum(ids for (ids,) in gone)
        with self._connection.cursor("mixed_chunks", binary=True) as cursor:
            cursor.itersize = 1
            cursor.execute(_SQL["mixed_chunks"], self._values)
            for bucket, sequence, chunk, oldest, *stored in cursor:
                entries = Entries.decode(
                    bucket=bucket,
                    oldest=oldest,
                    fingerprints=stored[0],
                    payload_hashes=stored[1],
                    sequences=stored[2],
                )
                place = {"bucket": bucket, "chunk_sequence": sequence, "chunk": chunk}
                self._shrink(entries, oldest, place)

    def _shrink(
        self, entries: Entries, oldest: int, place: Mapping[str, object]
    ) -> None:
        kept = entries.take(entries.sequences <= self._snapshot.sequence)
        self.ids += len(entries) - len(kept)
        if len(kept) == len(entries):
            return
        if not len(kept):
            self._connection.execute(_SQL["delete_chunk"], {**self._values, **place})
            return
        fingerprints, payload_hashes, sequences = kept.encode(oldest=oldest)
        self._connection.execute(
            _SQL["rewrite_chunk"],
            {
                **self._values,
                **place,
                "ids": len(kept),
                "first": fingerprints[:16],
                "last": fingerprints[-16:],
                "fingerprints": fingerprints,
                "payload_hashes": payload_hashes,
                "sequences": sequences,
            },
        )

    def _delete_ledger(self) -> None:
        # Do it late: a relay that cannot move its cursor sends again what it has sent.
        self._execute("hold_cursor")
        found = fetch_one(self._connection, _SQL["messages_published"], **self._values)
        self._execute("delete_run_inputs")
        for table in OF_BATCHES:
            self._delete("delete_after", table, schema="tallyweir")
        for table in ("accepted_gap", "offset_reset"):
            self._delete("delete_moves", table, schema="tallyweir")
        self._delete("delete_after", "batch", schema="tallyweir")
        # The relay deletes what it sends, so published messages that are gone are in
        # Kafka.
        self.messages_sent = found["messages"] - self.rows["tallyweir.outbox"]

    def _count_messages(self) -> None:
        """Take the removed messages out of the relay's count.

        A relay may send messages of earlier batches meanwhile, which adds to the count.
        """
        if not self.messages_sent:
            return
        values = {**self._values, "taken": self.messages_sent}
        for statement in ("forget_cursor", "uncount_sent"):
            self._connection.execute(_SQL[statement], values)

    def _put_back(self, target: sql.Identifier, copy_name: str) -> int:
        copy = self._snapshot.copy(copy_name)
        found = fetch(
            self._connection,
            _SQL["columns"],
            target=target.as_string(self._connection),
            copy=copy.as_string(self._connection),
        )
        columns = sql.SQL(", ").join(sql.Identifier(row["name"]) for row in found)
        return self._execute("put_back", target=target, copy=copy, columns=columns)

    def _delete(self, statement: str, table: str, *, schema: str | None = None) -> None:
        target = (
            table_identifier(table) if schema is None else sql.Identifier(schema, table)
        )
        gone = self._execute(statement, target=target)
        if gone:
            self.rows[table if schema is None else f"{schema}.{table}"] += gone

    def _exists(self, table: str) -> bool:
        return is_held(self._connection, table_identifier(table))

    def _execute(self, statement: str, **identifiers: sql.Composable) -> int:
        composed = _SQL[statement].format(**identifiers)
        return self._connection.execute(composed, self._values).rowcount
