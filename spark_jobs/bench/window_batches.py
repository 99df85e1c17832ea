"""Batches of one window output, without Spark and Kafka between, for benchmarks.

A batch goes through the very code of a task and of a publish transaction: partial
aggregation and COPY as a task does them, then the merge, up to its COMMIT. So each half
is timed alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinks.postgres.outputs.window_table import WindowTable
from sinks.postgres.publish.output_moves import OutputMoves
from sinks.postgres.server.branch_names import HOME
from sinks.postgres.server.columns import packed
from sinks.postgres.server.connection import connect
from sinks.postgres.server.naming import TableNames
from sinks.postgres.staging.attempt_register import ATTEMPTS, transactions_of
from sinks.postgres.staging.staging import StagingWriter, create_staging
from sinks.postgres.tables.result_tables import create_result_tables
from sinks.protocol.identity import Attempt, Epoch
from sinks.protocol.votes import BatchTally, OutputTally
from spark_jobs.task.windows.window_assignment import assign_windows
from spark_jobs.task.windows.window_partials import aggregate_windows

I64Array = npt.NDArray[np.int64]
#: When a task's events happened, and the events.
TaskEvents = tuple[I64Array, pa.Table]

EPOCH = Epoch(1)
#: When events begin to happen, and batches are planned.
START = datetime(2026, 3, 1, tzinfo=UTC)


class WindowBatches:
    """Batches of one window output, in a database of a benchmark's own.

    Args:
        dsn: Of the home.
        pipeline_number: One that the home has not registered.
        output: The window output.
    """

    def __init__(self, dsn: str, pipeline_number: int, output: WindowTable) -> None:
        names = TableNames(pipeline_number=pipeline_number, epoch=EPOCH, sequence=1)
        self._output = output
        self._names = names
        self._sequence = 0
        self._attempt = 0
        self._connection = connect(dsn, application_name="tallyweir-bench")
        create_result_tables(self._connection, [output], names.state)
        create_staging(
            self._connection,
            {output.staging_table: packed(output.staging_columns)},
            pipeline_number=names.pipeline_number,
            epoch=EPOCH,
        )
        self._connection.commit()

    def close_all(self, watermark: datetime) -> float:
        """Let a watermark pass, without events; return the seconds of its merge."""
        return timed(lambda: self._merge([], 0, watermark=watermark))

    def end(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def run(self, tasks: Sequence[TaskEvents]) -> dict[str, float]:
        """Run one batch, all its tasks one after the other.

        Returns:
            Seconds of ``partial``, ``copy`` and ``merge``, staged ``rows`` and
            ``log_bytes`` of the merge.
        """
        attempts: list[Attempt] = []
        partials: list[pa.Table] = []
        partial_s = timed(
            lambda: partials.extend(self._aggregate(*task) for task in tasks)
        )
        copy_s = timed(lambda: attempts.extend(map(self._copy, partials)))
        rows = sum(table.num_rows for table in partials)
        log_before = self._log_bytes()
        merge_s = timed(lambda: self._merge(attempts, rows, watermark=None))
        log_bytes = self._log_bytes() - log_before
        self._empty_staging()
        return {
            "rows": rows,
            "partial": partial_s,
            "copy": copy_s,
            "merge": merge_s,
            "log_bytes": log_bytes,
        }

    def _empty_staging(self) -> None:
        """As the driver does when many rows lie there."""
        staged = map(self._names.staging, (self._output.staging_table, ATTEMPTS))
        tables = ", ".join(table.as_string(self._connection) for table in staged)
        self._connection.execute(f"TRUNCATE {tables}".encode())
        self._connection.commit()

    def _log_bytes(self) -> int:
        row = self._connection.execute(
            "SELECT (pg_current_wal_lsn() - '0/0')::bigint"
        ).fetchone()
        self._connection.commit()
        assert row is not None, "the server has a log"
        return int(row[0])

    def _aggregate(self, times_us: I64Array, events: pa.Table) -> pa.Table:
        assigned = assign_windows(times_us, self._output.windows)
        return aggregate_windows(events, assigned, self._output, 0)

    def _copy(self, partials: pa.Table) -> Attempt:
        self._attempt += 1
        attempt = Attempt(self._attempt)
        with StagingWriter(self._connection, self._names, attempt=attempt) as writer:
            output = self._output
            writer.copy(output.staging_table, output.staging_columns, partials)
        return attempt

    def _merge(
        self, attempts: Sequence[Attempt], rows: int, *, watermark: datetime | None
    ) -> None:
        """Do the output's share of a publish transaction, and commit it."""
        self._sequence += 1
        tally = BatchTally(
            partitions={},
            staged={self._output.staging_table: rows},
            outputs={self._output.table: OutputTally(rows=rows)},
            attempts=tuple(attempts),
            checksum=0,
        )
        values = {
            "sequence": self._sequence,
            "planned_at": START,
            "transactions": transactions_of(self._connection, self._names, attempts),
            "watermark_before": None,
            "watermark_after": watermark,
        }
        moves = OutputMoves(self._connection, self._names, tally, values)
        moves.run([self._output], HOME)
        self._connection.commit()


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that something takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began
