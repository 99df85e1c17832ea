"""What a batch of windows costs by how many groups it touches, half by half.

``./tallyweir bench windows`` runs it. A batch goes through the very code of a task and
of a publish transaction, without Spark and Kafka between: partial aggregation and COPY
as a task does them, then the merge, up to its COMMIT. So each half is timed alone.

Prints one line of JSON for each number of groups.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinks.postgres.attempt_register import ATTEMPTS, transactions_of
from sinks.postgres.branch_names import HOME
from sinks.postgres.columns import packed
from sinks.postgres.connection import connect
from sinks.postgres.migrations import migrate
from sinks.postgres.naming import TableNames
from sinks.postgres.output_moves import OutputMoves
from sinks.postgres.result_tables import create_result_tables
from sinks.postgres.staging import StagingWriter, create_staging
from sinks.postgres.window_table import WindowTable
from sinks.protocol.identity import Attempt, Epoch
from sinks.protocol.votes import BatchTally, OutputTally
from sinks.settings import HOME_DSN_VARIABLE, read_setting
from spark_jobs.pipeline import load_pipeline
from spark_jobs.pipeline.window import WindowOutput
from spark_jobs.window_assignment import assign_windows
from spark_jobs.window_layout import window_table
from spark_jobs.window_partials import aggregate_windows

I64Array = npt.NDArray[np.int64]
#: When a task's events happened, and the events.
_Task = tuple[I64Array, pa.Table]

_EPOCH = Epoch(1)
#: Of pipelines that the home has not registered.
_FIRST_NUMBER = 1_001
_TASKS = 4
#: Windows that are open at a time, and how long each is.
_WINDOWS = 10
_WINDOW_S = 10
_START = datetime(2026, 3, 1, tzinfo=UTC)
#: Batches that touch groups which are there already.
_UPDATES = 3
_SECOND_US = 1_000_000


def main() -> None:
    """Measure batches of so many events, once for each number of groups."""
    file, events, *sizes = sys.argv[1:]
    (output,) = load_pipeline(Path(file)).outputs
    assert isinstance(output, WindowOutput), "the benchmark's pipeline has windows"
    dsn = read_setting(os.environ, HOME_DSN_VARIABLE) or ""
    migrate(dsn)
    for number, groups in enumerate(map(int, sizes), start=_FIRST_NUMBER):
        table = window_table(0, output, "output_0", {"user_id": "bigint"}, (HOME,))
        table = replace(table, table=f"{table.table}_of_{groups}")
        names = TableNames(pipeline_number=number, epoch=_EPOCH, sequence=1)
        batches = _Batches(dsn, names, table)
        figures = batches.measure(events=int(events), groups=groups)
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()


class _Batches:
    """Batches of one window output that touch the same groups each.

    Args:
        dsn: Of the home.
        names: Of state and staging.
        output: The window output.
    """

    def __init__(self, dsn: str, names: TableNames, output: WindowTable) -> None:
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
            epoch=_EPOCH,
        )
        self._connection.commit()

    def measure(self, *, events: int, groups: int) -> dict[str, object]:
        """Open the groups, touch them again, and close them all."""
        tasks = _events_of_tasks(events, groups)
        opening, *others = batches = [self._run(tasks) for _ in range(1 + _UPDATES)]
        after_all = _START + timedelta(days=1)
        closing_s = _timed(lambda: self._merge([], 0, watermark=after_all))
        self._connection.close()

        def median(name: str) -> float:
            return round(statistics.median(batch[name] for batch in others), 4)

        return {
            "table": self._output.table,
            "groups": groups,
            "batches": len(batches),
            "staged_rows": opening["rows"],
            "partial_seconds": median("partial"),
            "copy_seconds": median("copy"),
            "merge_seconds": median("merge"),
            "opening_merge_seconds": round(opening["merge"], 4),
            "closing_merge_seconds": round(closing_s, 4),
            "merge_log_bytes": round(median("log_bytes")),
        }

    def _run(self, tasks: Sequence[_Task]) -> dict[str, float]:
        """Run one batch, all its tasks one after the other."""
        attempts: list[Attempt] = []
        partials: list[pa.Table] = []
        partial_s = _timed(
            lambda: partials.extend(self._aggregate(*task) for task in tasks)
        )
        copy_s = _timed(lambda: attempts.extend(map(self._copy, partials)))
        rows = sum(table.num_rows for table in partials)
        log_before = self._log_bytes()
        merge_s = _timed(lambda: self._merge(attempts, rows, watermark=None))
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
            "planned_at": _START,
            "transactions": transactions_of(self._connection, self._names, attempts),
            "watermark_before": None,
            "watermark_after": watermark,
        }
        moves = OutputMoves(self._connection, self._names, tally, values)
        moves.run([self._output], HOME)
        self._connection.commit()


def _events_of_tasks(events: int, groups: int) -> list[_Task]:
    """Make a batch of events, in no order, that touch so many groups, by task."""
    source = np.random.default_rng(7)
    group = source.permutation(np.arange(events) % groups)
    start_us = int(_START.timestamp()) * _SECOND_US
    within_us = source.integers(0, _WINDOW_S * _SECOND_US, size=events)
    times_us = start_us + group % _WINDOWS * _WINDOW_S * _SECOND_US + within_us
    users = group // _WINDOWS
    return [
        (times, pa.table({"user_id": part}))
        for times, part in zip(
            np.array_split(times_us, _TASKS), np.array_split(users, _TASKS), strict=True
        )
    ]


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
