"""Deletes what batches after a snapshot have brought; puts back what they changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
)
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.naming import revisions_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.snapshot import (
    KEPT_BY_PIPELINE,
    Snapshot,
    WindowCopies,
    held_windows,
    is_held,
)
from tallyweir.sinks.seen_ids.entries import Entries

_SQL = load_statements("tallyweir.sinks.postgres.steering", "restore.sql")
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
