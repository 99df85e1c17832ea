"""The publish transaction: everything that a batch changes, or nothing.

The order of its steps is the protocol's (``sinks.protocol``):

1. lock the pipeline's row, so that publish transactions of one pipeline queue up;
2. fence and compare the offsets, on what is read under the lock;
3. write the ledger: batch, partitions, outputs;
4. move the voted rows from staging to their tables and check their number;
5. merge the windows and settle those that the watermark has passed;
6. advance offsets and watermark;
7. COMMIT, with ``synchronous_commit = on``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow
from psycopg.types.json import Json

from sinks.postgres.columns import names, table_identifier
from sinks.postgres.instants import to_datetime, to_microseconds
from sinks.postgres.naming import staging_table, state_table
from sinks.postgres.outputs import AppendTable, HomeLayout, LatePolicy, WindowTable
from sinks.postgres.sqlstate import is_row_rejection
from sinks.postgres.staging import EVENT_LOGS
from sinks.postgres.statements import load_statements
from sinks.postgres.stored_state import StoredState, lock_stored_state
from sinks.postgres.window_merge import WindowMerge
from sinks.protocol.decisions import PublishDecision, PublishOutcome, decide_publish
from sinks.protocol.errors import RetryableError
from sinks.protocol.identity import Sequence as SequenceNumber
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.ports import BatchPlan
from sinks.protocol.votes import BatchTally, EventCounts, OutputTally, PartitionTally
from sinks.protocol.watermark import PartitionClock, advance_watermark

_SQL = load_statements("sinks.postgres", "publish.sql")
_CLAIM_SQL = load_statements("sinks.postgres", "claim.sql")

_Connection = psycopg.Connection[TupleRow]


class RowRefusedError(Exception):
    """A result table refused a row; which one, bisection must find."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPublication:
    """A batch as it stands after phase one: planned, staged and voted for."""

    plan: BatchPlan
    tally: BatchTally
    #: How often it was staged again without rows that a table refused.
    restagings: int


class PublishTransaction:
    """One attempt to publish one batch on an open connection.

    The caller commits or rolls back; see ``PostgresHome.publish``.
    """

    def __init__(
        self,
        connection: _Connection,
        layout: HomeLayout,
        batch: StagedPublication,
        *,
        pipeline_number: int,
        claimed_at: datetime | None,
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._pipeline_number = pipeline_number
        self._claimed_at = claimed_at
        self._plan = batch.plan
        self._tally = batch.tally
        self._restagings = batch.restagings

    def run(self) -> PublishOutcome:
        """Do everything but the COMMIT.

        Raises:
            FencedError, FatalError: From ``decide_publish``.
            RetryableError: ``STAGED_ROWS_MISSING``, after a crash of the server.
            RowRefusedError: A result table refused a row.
            psycopg.Error: Anything that the server or the connection raised.
        """
        self._execute("begin_settings")
        stored = lock_stored_state(self._connection, self._layout.pipeline)
        decision = decide_publish(
            key=self._plan.key,
            newest_epoch=stored.progress.newest_epoch,
            claim_kept=stored.claimed_at == self._claimed_at,
            stored={
                topic_partition: position.next_offset
                for topic_partition, position in stored.progress.positions.items()
            },
            ranges=self._plan.ranges,
        )
        if decision is PublishDecision.ALREADY_COMMITTED:
            return PublishOutcome.ALREADY_COMMITTED
        sequence = SequenceNumber(stored.progress.last_sequence + 1)
        now = self._clock()
        values = self._values(stored, sequence, now)
        self._write_ledger(values)
        self._move_event_logs(values)
        for output in self._layout.outputs:
            if isinstance(output, AppendTable):
                self._append(output, values)
            else:
                self._merge_windows(output, values)
        self._advance(values, now)
        # A user's deferred constraint must fail here, where the row can be found,
        # and not inside COMMIT.
        with _row_refusals():
            self._execute("check_deferred_constraints")
        return PublishOutcome.COMMITTED

    def _values(
        self, stored: StoredState, sequence: SequenceNumber, now: datetime
    ) -> dict[str, object]:
        """Collect the parameters that most statements share."""
        former_us = stored.progress.watermark_us
        assert former_us == self._plan.watermark_us, (
            "the watermark moved without offsets"
        )
        watermark_us = advance_watermark(
            former_us,
            self._clocks_after(stored.clocks, now).values(),
            delay_us=self._layout.watermark_delay_us,
            idle_timeout_us=self._layout.idle_timeout_us,
            now_us=to_microseconds(now),
        )
        return {
            "pipeline": self._layout.pipeline,
            "sequence": sequence,
            "epoch": self._plan.key.epoch,
            "spark_batch_id": self._plan.key.spark_batch_id,
            "watermark_before": to_datetime(former_us),
            "watermark_after": to_datetime(watermark_us),
            "attempts": list(self._tally.attempts),
        }

    def _clocks_after(
        self, before: Mapping[TopicPartition, PartitionClock], now: datetime
    ) -> dict[TopicPartition, PartitionClock]:
        after = dict(before)
        for topic_partition, seen in self._tally.partitions.items():
            if seen.event_time_max_us is None:
                continue
            former = before.get(topic_partition)
            former_us = former.event_time_max_us if former else None
            after[topic_partition] = PartitionClock(
                event_time_max_us=max(
                    seen.event_time_max_us,
                    seen.event_time_max_us if former_us is None else former_us,
                ),
                active_at_us=to_microseconds(now),
            )
        return after

    def _write_ledger(self, values: Mapping[str, object]) -> None:
        self._execute(
            "insert_batch",
            {
                **values,
                "checksum": self._tally.checksum,
                "lookups": Json(dict(self._plan.lookups)),
                "restagings": self._restagings,
                "planned_at": to_datetime(self._plan.planned_at_us),
                "staged_at": self._clock(),
            },
        )
        for planned in self._plan.ranges:
            seen = self._tally.partitions.get(planned.topic_partition)
            counts = seen.counts if seen else EventCounts()
            self._execute(
                "insert_batch_partition",
                {
                    **values,
                    "topic": planned.topic_partition.topic,
                    "partition": planned.topic_partition.partition,
                    "from_offset": planned.from_offset,
                    "until_offset": planned.until_offset,
                    **{name: getattr(counts, name) for name in _COUNT_NAMES},
                },
            )
        for output in self._layout.outputs:
            tally = self._tally.outputs.get(output.table, OutputTally())
            self._execute(
                "insert_batch_output",
                {
                    **values,
                    "output_table": output.table,
                    "kind": "append" if isinstance(output, AppendTable) else "window",
                    "events": tally.events,
                    "rows": tally.rows,
                    "late": tally.late,
                    "revised": tally.revised,
                },
            )

    def _move_event_logs(self, values: Mapping[str, object]) -> None:
        """Move dead letters, late and expired events, repeats, and seen IDs."""
        for table, columns in EVENT_LOGS.items():
            if not self._tally.staged.get(table):
                continue
            moved = self._execute(
                "move_event_log",
                values,
                target=sql.Identifier("tallyweir", table),
                staging=self._staging(table),
                columns=names(columns),
            )
            self._check_moved(table, moved.rowcount)

    def _append(self, output: AppendTable, values: Mapping[str, object]) -> None:
        if not self._tally.staged.get(output.staging_table):
            return
        with _row_refusals():
            moved = self._execute(
                "move_append",
                values,
                target=table_identifier(output.table),
                staging=self._staging(output.staging_table),
                columns=names(output.columns),
                sources=sql.SQL(", ").join(c.from_staging for c in output.columns),
            )
        self._check_moved(output.staging_table, moved.rowcount)

    def _merge_windows(self, output: WindowTable, values: Mapping[str, object]) -> None:
        merge = WindowMerge(
            self._connection,
            output,
            values,
            staging=self._staging(output.staging_table),
            state=state_table(self._pipeline_number, output.table),
        )
        if self._tally.staged.get(output.staging_table):
            # The merge groups rows, so its row count says nothing about staged ones.
            self._check_moved(output.staging_table, merge.count_staged())
            tally = self._tally.outputs.get(output.table, OutputTally())
            if tally.revised and output.late is LatePolicy.REVISE:
                merge.keep_former_values()
            merge.run()
        if values["watermark_after"] != values["watermark_before"]:
            merge.settle()

    def _advance(self, values: Mapping[str, object], now: datetime) -> None:
        for planned in self._plan.ranges:
            seen = self._tally.partitions.get(planned.topic_partition)
            event_time_max_us = _event_time_max_us(seen)
            advanced = self._execute(
                "advance_position",
                {
                    **values,
                    "topic": planned.topic_partition.topic,
                    "partition": planned.topic_partition.partition,
                    "topic_id": self._plan.topic_ids[planned.topic_partition.topic],
                    "from_offset": planned.from_offset,
                    "until_offset": planned.until_offset,
                    "event_time_max": to_datetime(event_time_max_us),
                    "active_at": None if event_time_max_us is None else now,
                },
            )
            assert advanced.rowcount == 1, f"{planned} moved under the lock"
        moved = self._execute("advance_pipeline", values)
        assert moved.rowcount == 1, "the pipeline's row moved under its lock"

    def _check_moved(self, table: str, rows: int) -> None:
        voted = self._tally.staged.get(table, 0)
        if rows != voted:
            raise RetryableError(
                "STAGED_ROWS_MISSING",
                saw=f"The tasks voted for {voted} rows of {table}; staging holds "
                f"{rows}.",
                why="A crash of the server empties staging tables.",
                fix="Nothing to do: the batch is staged again.",
            )

    def _staging(self, table: str) -> sql.Identifier:
        return staging_table(self._pipeline_number, self._plan.key.epoch, table)

    def _clock(self) -> datetime:
        row = self._connection.execute(_CLAIM_SQL["server_clock"]).fetchone()
        assert row is not None
        assert isinstance(row[0], datetime)
        return row[0]

    def _execute(
        self,
        statement: str,
        values: Mapping[str, object] | None = None,
        **identifiers: sql.Composable,
    ) -> psycopg.Cursor[TupleRow]:
        composed = _SQL[statement].format(**identifiers)
        return self._connection.execute(composed, values)


@contextmanager
def _row_refusals() -> Iterator[None]:
    """Tell a row that the user's table refuses from every other error."""
    try:
        yield
    except psycopg.Error as error:
        if is_row_rejection(error):
            raise RowRefusedError(error) from error
        raise


_COUNT_NAMES = ("read", "committed", "duplicate", "dead", "late", "expired", "filtered")


def _event_time_max_us(seen: PartitionTally | None) -> int | None:
    return None if seen is None else seen.event_time_max_us
