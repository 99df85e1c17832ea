"""Phase 2b of the batch protocol, as one Spark task runs it on an executor.

A task has the keys of its shards. It reads the events that phase one has staged and
voted for, the state of these keys, and the due timers. It calls the functions with the
events as Arrow tables, and stages what they return and change. As in phase one, only
its vote makes this count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from tallyweir.schemas.pipeline.functions.user_code import (
    CustomFigures,
    describe_failure,
)
from tallyweir.schemas.pipeline.outputs.stateful import Json, Stateful, ValueState
from tallyweir.sinks.postgres.outputs.key_text import parse_key, shard_of
from tallyweir.sinks.postgres.outputs.keyed_table import KEYED_LOGS, KeyedTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.connection import KeptConnection
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.staging.keyed_store import DueTimer, KeyedStore
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter
from tallyweir.sinks.protocol.errors import ConfigurationError, TallyweirError
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.protocol.samples import join_samples
from tallyweir.sinks.protocol.vote_text import format_failure, format_keyed_vote
from tallyweir.sinks.protocol.votes import KeyedVote
from tallyweir.sinks.settings import HOME_DSN_VARIABLE, read_setting
from tallyweir.sinks.step_clock import StepClock
from tallyweir.spark_jobs.keyed.state_handles import KeyState, StateChange, StateVersion
from tallyweir.spark_jobs.keyed.timer_handles import (
    EVENT,
    PROCESSING,
    FiredTimer,
    KeyTimers,
    TimerChange,
)
from tallyweir.spark_jobs.task.postgres_values import find_unstorable, has_json_zero
from tallyweir.spark_jobs.task.sampling import Sampling, sample_results


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTask:
    """Everything that a task must know; Spark sends it to executors with each batch.

    Attributes:
        outputs: Each stateful output with its tables.
        pipeline: Name of the pipeline.
        claim: EpochClaim of the driver.
        voted: The attempts of phase one that voted.
        sequence: Sequence under which the batch will be published.
        watermark_us: Watermark after the batch.
        planned_at_us: The database's clock at planning, which functions see as now.
        fires_clock_through_us: Time up to which timers of the clock are due; None for
            none.
        shards: Number of shards of the keys.
        tasks: Number of tasks that share the shards.
        sampling: Samples of the rows that are kept for people; None for none.
    """

    outputs: Sequence[tuple[Stateful, KeyedTable]]
    pipeline: str
    claim: EpochClaim
    voted: tuple[Attempt, ...]
    sequence: int
    watermark_us: int | None
    planned_at_us: int
    fires_clock_through_us: int | None
    shards: int
    tasks: int
    sampling: Sampling | None

    @property
    def timers_through(self) -> Mapping[str, datetime | None]:
        """Time up to which timers of each clock are due."""
        return {
            EVENT: to_datetime(self.watermark_us),
            PROCESSING: to_datetime(self.fires_clock_through_us),
        }

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the shards of the tasks whose numbers arrive; yield the vote."""
        numbers = [n for batch in batches for n in batch.column(0).to_pylist()]
        shards = [n for n in range(self.shards) if n % self.tasks in numbers]
        try:
            vote = format_keyed_vote(self._work(shards))
        except TallyweirError as error:
            vote = format_failure(error)
        yield pa.RecordBatch.from_pydict({"vote": [vote]})

    def _work(self, shards: Sequence[int]) -> KeyedVote:
        context = TaskContext.get()
        assert context is not None, "a task on keys runs inside Spark only"
        attempt = self.claim.attempt(context.taskAttemptId())
        dsn = read_setting(os.environ, HOME_DSN_VARIABLE) or ""
        connection = _connection.get(
            dsn, pipeline_number=self.claim.pipeline_number, epoch=self.claim.epoch
        )
        names = TableNames(
            pipeline_number=self.claim.pipeline_number,
            epoch=self.claim.epoch,
            sequence=self.sequence,
        )
        consumed: dict[str, int] = {}
        worked = []
        clock, figures = StepClock(), CustomFigures()
        for output, table in self.outputs:
            store = KeyedStore(
                connection,
                self.pipeline,
                table,
                watermark=to_datetime(self.watermark_us),
            )
            with clock.spent_on("read_keys"):
                events = store.read_events(names, self.voted, shards)
                now = self.timers_through[PROCESSING]
                due = store.read_due_timers(shards, now=now)
            consumed[table.staging_table] = len(events)
            work = _OutputWork(self, output, table, store)
            with clock.spent_on("keys") as keys, figures.gathered():
                work.run(events, due)
                keys.rows_in += len(events)
                keys.rows_out += len(work.rows)
            worked.append(work)
        with (
            clock.spent_on("copy_keys") as copy,
            StagingWriter(connection, names, attempt=attempt) as writer,
        ):
            for work in worked:
                work.stage(writer)
            copy.rows_out = sum(writer.rows.values())
        return KeyedVote(
            attempt=attempt,
            consumed=consumed,
            staged=writer.rows,
            rows={work.table.table: len(work.rows) for work in worked},
            # The tasks of phase one report how evenly they shared its work.
            measures=replace(clock.measures(), task_seconds=()) + figures.measures(),
            samples=join_samples(
                sample_results(self.sampling, work.table, work.rows) for work in worked
            ),
        )


class _OutputWork:
    """One stateful output in one task, with the results of its function by key."""

    def __init__(
        self,
        task: KeyTask,
        output: Stateful,
        table: KeyedTable,
        store: KeyedStore,
    ) -> None:
        self._task = task
        self._output = output
        self.table = table
        self._store = store
        self._version = StateVersion(number=output.version, migrate=output.migrate)
        self.rows: list[dict[str, Any]] = []
        self._changes: list[tuple[str, StateChange]] = []
        self._timers: list[tuple[str, TimerChange]] = []

    def run(self, events: list[tuple[Any, ...]], due: list[DueTimer]) -> None:
        """Call the function for each key that has events or timers, in order."""
        columns = self.table.staging_columns[:-3]
        # Position and time come with the events; the key and its shard do not.
        trimmed = [(*row[: len(columns)], row[-1]) for row in events]
        tables = dict(tables_by_key(columns, trimmed))
        fired = {key: list(group) for key, group in groupby(due, lambda t: t.key)}
        keys = sorted({*tables, *fired})
        names = [n for n, k in self._output.state.items() if isinstance(k, ValueState)]
        values = self._store.read_values(keys, names) if keys and names else {}
        empty = no_events(columns)
        for key in keys:
            state = KeyState(
                key,
                self._output.state,
                self._store,
                self._version,
                sequence=self._task.sequence,
            )
            timers = KeyTimers(
                [
                    FiredTimer(name=one.name, at=one.fires_at, clock=one.clock)
                    for one in fired.get(key, ())
                ],
                key=key,
                now=to_datetime(self._task.planned_at_us),
                through=self._task.timers_through,
            )
            with _users_code(self._output):
                for name in names:
                    state.take(name, values.get((key, name)))
                self._call(key, tables.get(key, empty), state, timers)

    def _call(
        self, key: str, events: pa.Table, state: KeyState, timers: KeyTimers
    ) -> None:
        values = parse_key(key)
        watermark = to_datetime(self._task.watermark_us)
        returned = self._output.function(values, events, state, timers, watermark)
        named = dict(zip(self._output.key, values, strict=True))
        for ordinal, row in enumerate(returned or ()):
            unknown = sorted(set(row) - set(self._output.columns))
            if unknown:
                raise KeyError(f"a row has no column {', '.join(unknown)}")
            self.rows.append({**named, **row, "tallyweir_ordinal": ordinal})
        self._changes += [(key, change) for change in state.changes()]
        self._timers += [(key, change) for change in timers.changes()]

    def stage(self, writer: StagingWriter) -> None:
        """Copy result rows and changes to staging."""
        columns = self.table.rows_staging_columns
        with _users_code(self._output):
            rows = result_table(columns, self.rows)
        writer.copy(self.table.rows_staging_table, columns, rows)
        _copy(writer, "keyed_state", self._state_rows())
        _copy(writer, "keyed_timer", self._timer_rows())

    def _state_rows(self) -> Iterator[Mapping[str, Any]]:
        expires_at = None
        if self._output.ttl is not None and self._task.watermark_us is not None:
            expires_at = _after(self._task.watermark_us, self._output.ttl)
        for key, change in self._changes:
            yield {
                "output_table": self.table.table,
                "key": key,
                "name": change.name,
                "entry": change.entry,
                "change": change.change,
                "value": change.value,
                "schema_version": self._output.version,
                "expires_at": expires_at,
            }

    def _timer_rows(self) -> Iterator[Mapping[str, Any]]:
        for key, timer in self._timers:
            yield {
                "output_table": self.table.table,
                "key": key,
                "name": timer.name,
                "shard": shard_of(key, self._task.shards),
                "clock": timer.clock,
                "fires_at": timer.fires_at,
            }


@contextmanager
def _users_code(output: Stateful) -> Iterator[None]:
    """Explain an error of a user's function without quoting its message."""
    try:
        yield
    except TallyweirError:
        raise
    except Exception as error:
        raise ConfigurationError(
            "STATEFUL_FUNCTION_FAILED",
            saw=f"The function of {output.table} failed: "
            f"{describe_failure(error, quote_message=False)}.",
            why="The driver cannot publish the batch without the function's results.",
            fix="Correct the function, or let it skip such events. The error's "
            "message is left out, because it may quote an event.",
        ) from error


def _copy(writer: StagingWriter, table: str, rows: Iterator[Mapping[str, Any]]) -> None:
    columns = KEYED_LOGS[table]
    writer.copy(table, columns, result_table(columns, list(rows)))


def _after(instant_us: int, duration: timedelta) -> datetime:
    return to_datetime(instant_us) + duration


#: One connection for all tasks and batches of a Python worker.
_connection = KeptConnection()


_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "double precision": pa.float64(),
    "integer": pa.int32(),
    # Text, as it is staged.
    "jsonb": pa.string(),
    "real": pa.float32(),
    "smallint": pa.int16(),
    "text": pa.string(),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "timestamp without time zone": pa.timestamp("us"),
}


class JsonText(str):
    """A nested value that is JSON text already, as in events."""

    __slots__ = ()


def tables_by_key(
    columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield each key with the table of its events, in the order of the rows.

    Args:
        columns: Columns of the rows, without the last value.
        rows: Rows ordered by key, which is the last value of each.
    """
    first = 0
    whole = _table(columns, rows)
    for key, group in groupby(rows, key=lambda row: row[-1]):
        length = sum(1 for _ in group)
        yield key, whole.slice(first, length)
        first += length


def no_events(columns: Sequence[Column]) -> pa.Table:
    """Return the empty table of a key that has only a timer."""
    return _table(columns, ())


def result_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> pa.Table:
    """Turn result rows into the staged columns.

    Raises:
        TypeError, ValueError, OverflowError: A value is not of its column's type, or
            Postgres cannot hold it.
    """
    arrays = [
        pa.array([_staged(row.get(c.name), c) for row in rows], _arrow_type(c))
        if c.postgres_type != "numeric"
        else _numeric([row.get(c.name) for row in rows])
        for c in columns
    ]
    table = pa.table(arrays, names=[column.name for column in columns])
    for row, what in find_unstorable(table.combine_chunks()).items():
        raise ValueError(f"row {row}: {what}")
    return table


def _staged(value: Json, column: Column) -> Json:
    if column.postgres_type == "jsonb" and value is not None:
        is_text = isinstance(value, JsonText)
        text = str(value) if is_text else json.dumps(value, allow_nan=False)
        if has_json_zero(text):
            raise ValueError("jsonb holds no zero character")
        return text
    return value


def _table(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    arrays = [
        _numeric([row[index] for row in rows])
        if column.postgres_type == "numeric" and not column.is_text
        else pa.array([row[index] for row in rows], _arrow_type(column))
        for index, column in enumerate(columns)
    ]
    return pa.table(arrays, names=[column.name for column in columns])


def _numeric(values: list[Any]) -> pa.Array:
    """Choose enough digits for the values; a column of nulls gets a default."""
    if all(value is None for value in values):
        return pa.array(values, pa.decimal128(38, 9))
    return pa.array(values)


def _arrow_type(column: Column) -> pa.DataType:
    return pa.string() if column.is_text else _ARROW_TYPES[column.postgres_type]
