"""Windows over thousands of histories, against a model that keeps every event.

Tasks' own code makes the partials, and a real server merges them. What varies: when
events happen and arrive, how they fall into batches and tasks, how the watermark
moves, and how often a publish is undone and tried again with other tasks.
``TALLYWEIR_WINDOW_HISTORIES`` says how many histories of each kind are tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import layout_of
from integration_tests.harness.window_model import Event, Row, Rules, WindowModel
from sinks.postgres.branch_names import HOME
from sinks.postgres.columns import Column
from sinks.postgres.output_moves import OutputMoves, TableNames
from sinks.postgres.result_tables import create_result_tables
from sinks.postgres.staging import create_staging, staging_tables
from sinks.postgres.window_aggregates import AggregateFunction, WindowAggregate
from sinks.postgres.window_kinds import AlignedWindows, SessionWindows, WindowKind
from sinks.postgres.window_table import LatePolicy, WindowTable
from sinks.protocol.identity import Attempt, Epoch
from sinks.protocol.votes import BatchTally, OutputTally
from spark_jobs import event_frame as frame
from spark_jobs.event_frame import argument_column
from spark_jobs.window_assignment import assign_windows
from spark_jobs.window_partials import aggregate_windows, find_late, find_revising

_HISTORIES = int(os.environ.get("TALLYWEIR_WINDOW_HISTORIES", "40"))
_START = datetime(2026, 3, 1, tzinfo=UTC)
_SECOND_US = 1_000_000
_START_US = int(_START.timestamp()) * _SECOND_US
_NAMES = TableNames(pipeline_number=1, epoch=1)

Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Events, the task of each, how far the watermark comes, and undone tries."""

    events: list[Event]
    tasks: list[int]
    watermark_step: int
    undone: int


_event = st.builds(
    Event,
    at=st.integers(0, 60),
    key=st.sampled_from(["a", "b", None]),
    value=st.integers(-3, 3),
    position=st.tuples(st.integers(0, 1), st.integers(0, 10**6)),
)
_batch = st.builds(
    _Batch,
    events=st.lists(_event, max_size=8),
    tasks=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    watermark_step=st.sampled_from([0, 0, 1, 3, 10, 25]),
    undone=st.sampled_from([0, 0, 0, 1]),
)
_histories = st.lists(_batch, min_size=1, max_size=8)


def _aligned(size: int, every: int) -> AlignedWindows:
    return AlignedWindows(size_us=size * _SECOND_US, every_us=every * _SECOND_US)


_KINDS: dict[str, tuple[WindowKind, Rules]] = {
    "fixed": (_aligned(10, 10), Rules()),
    "fixed-revised": (_aligned(10, 10), Rules(lateness=12)),
    "sliding-revised": (_aligned(10, 4), Rules(size=10, every=4, lateness=5)),
    "session": (SessionWindows(gap_us=5 * _SECOND_US), Rules(gap=5)),
    "session-revised": (
        SessionWindows(gap_us=5 * _SECOND_US),
        Rules(gap=5, lateness=12),
    ),
}


def _table(windows: WindowKind, rules: Rules) -> WindowTable:
    return WindowTable(
        table="w",
        staging_table="output_0",
        windows=windows,
        by=(Column(name="key", postgres_type="text"),),
        aggregates=tuple(
            WindowAggregate(
                column=Column(name=function.value, postgres_type="bigint"),
                function=function,
                number=number,
                partial_type="bigint",
            )
            for number, function in enumerate(
                (
                    AggregateFunction.COUNT,
                    AggregateFunction.SUM,
                    AggregateFunction.MIN,
                    AggregateFunction.MAX,
                    AggregateFunction.FIRST,
                    AggregateFunction.LAST,
                )
            )
        ),
        allowed_lateness_us=rules.lateness * _SECOND_US,
        late=LatePolicy.REVISE,
    )


class _World:
    """One output's tables, in a transaction that is never committed."""

    def __init__(self, connection: Connection, output: WindowTable) -> None:
        self.connection = connection
        self.output = output
        create_result_tables(connection, [output], _NAMES.state)
        create_staging(
            connection,
            staging_tables(layout_of(output)),
            pipeline_number=1,
            epoch=Epoch(1),
        )
        self._attempt = 0

    def publish(
        self, batch: _Batch, tasks: Sequence[int], before: int | None, after: int | None
    ) -> list[Event]:
        """Stage and publish a batch; return the events that were late."""
        late: list[Event] = []
        attempts, staged, revised = [], 0, 0
        for task in sorted(set(tasks)):
            mine = [
                event
                for event, its in zip(batch.events, tasks, strict=False)
                if its == task
            ]
            self._attempt += 1
            attempts.append(Attempt(self._attempt))
            rows, its_late, its_revised = self._partials(mine, before)
            late += its_late
            staged += rows.num_rows
            revised += its_revised
            self._stage(rows)
        values = {
            "sequence": 1,
            "attempts": attempts,
            "watermark_before": _instant(before),
            "watermark_after": _instant(after),
        }
        tally = BatchTally(
            partitions={},
            staged={"output_0": staged},
            outputs={"w": OutputTally(rows=staged, revised=revised)},
            attempts=tuple(attempts),
            checksum=0,
        )
        OutputMoves(self.connection, _NAMES, tally, values).run([self.output], HOME)
        return late

    def _partials(
        self, events: Sequence[Event], watermark: int | None
    ) -> tuple[pa.Table, list[Event], int]:
        times = np.array(
            [_START_US + event.at * _SECOND_US for event in events], dtype=np.int64
        )
        values = pa.array([event.value for event in events], pa.int64())
        table = pa.table(
            {
                "key": pa.array([event.key for event in events], pa.string()),
                frame.EVENT_TIME: pa.array(times).cast(pa.timestamp("us", "UTC")),
                frame.PARTITION: pa.array(
                    [event.position[0] for event in events], pa.int32()
                ),
                frame.OFFSET: pa.array(
                    [event.position[1] for event in events], pa.int64()
                ),
                **{
                    argument_column(0, one.number): values
                    for one in self.output.aggregates
                },
            }
        )
        watermark_us = None if watermark is None else _START_US + watermark * _SECOND_US
        assigned = assign_windows(times, self.output.windows)
        is_late = find_late(assigned.ends, self.output, watermark_us)
        late = [events[row] for row in sorted(set(assigned.rows[is_late].tolist()))]
        taken = assigned.choose(~is_late)
        revised = int(find_revising(taken.ends, watermark_us).sum())
        return aggregate_windows(table, taken, self.output, 0), late, revised

    def _stage(self, rows: pa.Table) -> None:
        columns = [column.name for column in self.output.staging_columns]
        statement = sql.SQL("COPY {} (tallyweir_attempt, {}) FROM STDIN").format(
            _NAMES.staging("output_0"), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with self.connection.cursor().copy(statement) as copy:
            for row in rows.to_pylist():
                copy.write_row((self._attempt, *(row[name] for name in columns)))

    def rows(self, table: str = "w") -> list[Row]:
        read = self.connection.execute(
            sql.SQL(
                "SELECT extract(epoch FROM window_start - {start})::int, "
                "extract(epoch FROM window_end - {start})::int, key, count, sum, min, "
                "max, first, last, pane, final FROM {table} "
                'ORDER BY 1, 2, key COLLATE "C" NULLS FIRST'
            ).format(start=sql.Literal(_START), table=sql.Identifier(table))
        )
        return read.fetchall()

    def open_windows(self) -> int:
        row = self.connection.execute(
            sql.SQL("SELECT count(*) FROM {}").format(_NAMES.state("w"))
        ).fetchone()
        assert row is not None
        return int(row[0])


def _instant(second: int | None) -> datetime | None:
    return None if second is None else _START + timedelta(seconds=second)


@pytest.fixture
def transaction(home_dsn: str) -> Iterator[Connection]:
    """All histories happen in it."""
    with psycopg.connect(home_dsn) as connection:
        yield connection
        connection.rollback()


@pytest.mark.parametrize("kind", _KINDS)
def test_every_pane_of_every_history_is_as_the_model_has_it(
    kind: str, transaction: Connection
) -> None:
    """After each batch: rows, panes, revisions, late events, and state that is left."""
    windows, rules = _KINDS[kind]
    world = _World(transaction, _table(windows, rules))

    @settings(
        max_examples=_HISTORIES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(history=_histories)
    def agrees(history: list[_Batch]) -> None:
        transaction.execute("SAVEPOINT history")
        try:
            _follow(world, WindowModel(rules=rules), history)
        finally:
            transaction.execute("ROLLBACK TO SAVEPOINT history")

    agrees()


def _follow(world: _World, model: WindowModel, history: Sequence[_Batch]) -> None:
    for batch in history:
        before = model.watermark
        reached = [event.at for event in batch.events]
        # Somewhere behind the newest event, as with a delay, and never back.
        after = before
        if reached and batch.watermark_step:
            after = max(max(reached) - 10 + batch.watermark_step, before or 0)
        for undone in range(batch.undone):
            world.connection.execute("SAVEPOINT attempt")
            world.publish(
                batch, [(t + undone + 1) % 2 for t in batch.tasks], before, after
            )
            world.connection.execute("ROLLBACK TO SAVEPOINT attempt")
        late = world.publish(batch, batch.tasks, before, after)
        known = len(model.late)
        model.take(batch.events, after)
        assert model.rows() == world.rows()
        assert sorted(map(repr, model.late[known:])) == sorted(map(repr, late))
        assert sorted(map(repr, model.revisions)) == sorted(
            map(repr, world.rows("w_revisions"))
        )
        assert model.open_windows() == world.open_windows()
