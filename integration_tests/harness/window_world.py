"""One window output on a real server, filled by tasks' own code.

Everything happens in one transaction that is never committed, so nothing waits for a
disk. Times are whole seconds, as the model has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import layout_of
from integration_tests.harness.window_model import Event, Row, Rules
from tallyweir.sinks.postgres.audit.checks.written_outputs import (
    ToldVersion,
    WrittenOutput,
)
from tallyweir.sinks.postgres.outputs.output import VotedRows
from tallyweir.sinks.postgres.outputs.result_tables import create_result_tables
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import (
    AlignedWindows,
    LatePolicy,
    SessionWindows,
    WindowKind,
)
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.publish.publish_moves import OutputMoves
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME, TableNames
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.attempt_register import (
    register_attempt,
    transactions_of,
)
from tallyweir.sinks.postgres.staging.staging_tables import (
    create_staging,
    staging_tables,
)
from tallyweir.sinks.postgres.tables.row_digest import (
    RESULTS,
    REVISIONS,
    RowDigest,
    row_hash,
    row_text,
    stored,
)
from tallyweir.sinks.postgres.versions.held_knowledge import HeldWindows
from tallyweir.sinks.postgres.versions.version_claim import layout_to_json
from tallyweir.sinks.protocol.identity import Attempt, Epoch
from tallyweir.sinks.protocol.votes import BatchTally, OutputTally
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.event_columns import argument_column
from tallyweir.spark_jobs.task.window_assignment import assign_windows
from tallyweir.spark_jobs.task.window_partials import (
    aggregate_windows,
    find_late,
    find_revising,
)

_START = datetime(2026, 3, 1, tzinfo=UTC)
_SECOND_US = 1_000_000
_START_US = int(_START.timestamp()) * _SECOND_US
_VALUES = load_statements("tallyweir.sinks.postgres.audit.checks", "row_values.sql")
_NAMES = TableNames(pipeline_number=1, epoch=1, sequence=1)

#: Name and function of each aggregate, and how its column is read.
_AGGREGATES = (
    ("total", AggregateFunction.SUM, "total"),
    ("least", AggregateFunction.MIN, "least"),
    ("greatest", AggregateFunction.MAX, "greatest"),
    ("earliest", AggregateFunction.FIRST, "earliest"),
    ("latest", AggregateFunction.LAST, "latest"),
    ("deviation", AggregateFunction.STDDEV, "round(deviation::numeric, 9)::float8"),
)
_SKETCHED = (
    ("different", AggregateFunction.APPROX_COUNT_DISTINCT, "different"),
    # Within 1 % of one of the model's whole numbers is only that number.
    ("typical", AggregateFunction.APPROX_PERCENTILE, "round(typical)::int"),
)


def _aggregates_of(rules: Rules) -> tuple[tuple[str, AggregateFunction, str], ...]:
    return (*_AGGREGATES, *_SKETCHED) if rules.sketched else _AGGREGATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An event of one history, and the task that gets it."""

    history: int
    event: Event
    task: int


class WindowWorld:
    """The output's tables, which hold the groups of many histories."""

    def __init__(self, connection: psycopg.Connection[TupleRow], rules: Rules) -> None:
        self.connection = connection
        self._output = _table(rules)
        self._aggregates = _aggregates_of(rules)
        self._attempt = 0
        self._published: dict[str, dict[str, int]] = {}
        self._digests: dict[str, RowDigest] = {}
        create_result_tables(connection, [self._output], _NAMES.state)
        create_staging(
            connection,
            staging_tables(layout_of(self._output)),
            pipeline_number=1,
            epoch=Epoch(1),
        )

    def empty(self) -> None:
        """Forget all histories."""
        self._digests = {}
        tables = [sql.Identifier("w"), _NAMES.state("w")]
        if self._output.keeps_revisions:
            tables.append(sql.Identifier("w_revisions"))
        self.connection.execute(
            sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(tables))
        )

    def publish(
        self,
        arrivals: Sequence[Arrival],
        before: int | None,
        after: int | None,
        *,
        sequence: int,
        planned_at: int,
    ) -> list[tuple[int, Event]]:
        """Stage and publish a batch; return the late events with their histories."""
        # All histories are of one transaction, which the rows of all batches belong to.
        self.connection.execute(
            sql.SQL("TRUNCATE {}").format(_NAMES.staging("output_0"))
        )
        late: list[tuple[int, Event]] = []
        attempts, staged, revised = [], 0, 0
        for task in sorted({arrival.task for arrival in arrivals}):
            mine = [arrival for arrival in arrivals if arrival.task == task]
            self._attempt += 1
            attempts.append(Attempt(self._attempt))
            rows, late_rows, its_revised = self._partials(mine, before)
            late += [(mine[row].history, mine[row].event) for row in late_rows]
            staged += rows.num_rows
            revised += its_revised
            self._stage(rows)
        values = {
            "sequence": sequence,
            "planned_at": _instant(planned_at),
            "transactions": transactions_of(self.connection, _NAMES, attempts),
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
        moves = OutputMoves(
            VotedRows(
                connection=self.connection, tables=_NAMES, tally=tally, values=values
            )
        )
        moves.run([self._output], HOME)
        self._published = moves.digests["w"]
        return late

    def keep_digests(self) -> None:
        """Add what the last publish has put into tables to the ledger's sums."""
        for kind, digest in self._published.items():
            former = self._digests.get(kind, RowDigest())
            self._digests[kind] = former + RowDigest.from_json(digest)

    def differing(self) -> list[str]:
        """Say what the tables show that neither state nor digests know."""
        output, found = self._output, []
        told = WrittenOutput(
            (
                ToldVersion(
                    from_sequence=0,
                    layout=layout_to_json(layout_of(output))["outputs"][0],
                    held=HeldWindows(),
                ),
            )
        )
        hashed = list(output.pane_columns) if output.discards else list(told.columns)
        if not output.discards:
            hashed = [c for c in hashed if c.name not in {"pane", "final"}]
            shown = told.shown_by_state
            assert shown is not None
            ((_, _, open_windows, examples),) = self.connection.execute(
                _VALUES["open_windows"].format(
                    place=row_text(stored(told.keys)),
                    owed=row_text(shown),
                    held=row_text(stored(column for column, _ in shown)),
                    waits=sql.SQL(
                        "tallyweir_waiting_since IS NOT NULL" if told.waits else "false"
                    ),
                    state=_NAMES.state("w"),
                    table=sql.Identifier("w"),
                ),
                {"shown": 1},
            ).fetchall()
            found += [str(examples)] if open_windows else []
        settled = sql.SQL("true" if output.discards else "final")
        tables = [(RESULTS, "w", hashed, settled)]
        if output.keeps_revisions:
            columns = list(output.revision_columns)
            tables.append((REVISIONS, "w_revisions", columns, sql.SQL("true")))
        for kind, table, columns, kept in tables:
            held = self._digest(table, columns, kept)
            if held != self._digests.get(kind, RowDigest()):
                found.append(f"{table}: {held} is not {self._digests}")
        return found

    def _digest(
        self, table: str, columns: Iterable[Column], kept: sql.SQL
    ) -> RowDigest:
        ((rows, total),) = self.connection.execute(
            sql.SQL(
                "SELECT count(*), coalesce(sum({hash}), 0) FROM {table} WHERE {kept}"
            ).format(
                hash=row_hash(stored(columns)), table=sql.Identifier(table), kept=kept
            )
        ).fetchall()
        return RowDigest(rows, int(total))

    def rows(self, table: str = "w") -> list[tuple[int, Row]]:
        """Return the rows of a table with the history of each."""
        aggregates = sql.SQL(", ").join(
            sql.SQL(read) for _, _, read in self._aggregates
        )
        read = self.connection.execute(
            sql.SQL(
                "SELECT history, extract(epoch FROM window_start - {start})::int, "
                "extract(epoch FROM window_end - {start})::int, key, events, "
                "{aggregates}, pane, final{sequence} FROM {table}"
            ).format(
                start=sql.Literal(_START),
                aggregates=aggregates,
                sequence=sql.SQL(
                    ", tallyweir_sequence" if self._output.discards else ""
                ),
                table=sql.Identifier(table),
            )
        )
        return [(history, tuple(row)) for history, *row in read]

    def revisions(self) -> list[tuple[int, Row]]:
        """Return the former values of settled rows, with the history of each."""
        return self.rows("w_revisions") if self._output.keeps_revisions else []

    def open_windows(self) -> list[int]:
        """Return the history of each window that has state."""
        state = _NAMES.state("w")
        read = self.connection.execute(sql.SQL("SELECT history FROM {}").format(state))
        return [history for (history,) in read]

    def _partials(
        self, arrivals: Sequence[Arrival], watermark: int | None
    ) -> tuple[pa.Table, list[int], int]:
        events = [arrival.event for arrival in arrivals]
        times = np.array(
            [_START_US + event.at * _SECOND_US for event in events], dtype=np.int64
        )
        values = pa.array([event.value for event in events], pa.int64())
        positions = [event.position for event in events]
        table = pa.table(
            {
                "history": pa.array([one.history for one in arrivals], pa.int64()),
                "key": pa.array([event.key for event in events], pa.string()),
                named.EVENT_TIME: pa.array(times).cast(pa.timestamp("us", "UTC")),
                named.PLACE: pa.array([p for p, _ in positions], pa.int64()),
                named.OFFSET: pa.array([o for _, o in positions], pa.int64()),
                # The first one counts events, so it has no argument.
                **{
                    argument_column(0, one.number): values
                    for one in self._output.aggregates[1:]
                },
            }
        )
        watermark_us = None if watermark is None else _START_US + watermark * _SECOND_US
        assigned = assign_windows(times, self._output.windows)
        is_late = find_late(assigned.ends, self._output, watermark_us)
        taken = assigned.choose(~is_late)
        revised = int(find_revising(taken.ends, watermark_us).sum())
        late = sorted(set(assigned.rows[is_late].tolist()))
        return aggregate_windows(table, taken, self._output, 0), late, revised

    def _stage(self, rows: pa.Table) -> None:
        # Under a test's savepoint rows have its id, and so has the register's.
        register_attempt(self.connection, _NAMES, Attempt(self._attempt))
        columns = [column.name for column in self._output.staging_columns]
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            _NAMES.staging("output_0"), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with self.connection.cursor().copy(statement) as copy:
            for row in _rows_of(rows, columns):
                copy.write_row(row)


def _rows_of(table: pa.Table, columns: Iterable[str]) -> Iterable[tuple[object, ...]]:
    return zip(*(table.column(name).to_pylist() for name in columns), strict=True)


def _table(rules: Rules) -> WindowTable:
    functions = [
        ("events", AggregateFunction.COUNT),
        *(a[:2] for a in _aggregates_of(rules)),
    ]
    return WindowTable(
        table="w",
        staging_table="output_0",
        windows=_kind(rules),
        by=(
            Column(name="history", postgres_type="bigint"),
            Column(name="key", postgres_type="text"),
        ),
        aggregates=tuple(
            _aggregate(number, name, function)
            for number, (name, function) in enumerate(functions)
        ),
        allowed_lateness_us=rules.lateness * _SECOND_US,
        late=LatePolicy.REVISE,
        early_us=None if rules.early_every is None else rules.early_every * _SECOND_US,
        discards=rules.discarding,
    )


def _kind(rules: Rules) -> WindowKind:
    if rules.gap is not None:
        return SessionWindows(gap_us=rules.gap * _SECOND_US)
    return AlignedWindows(
        size_us=rules.size * _SECOND_US, every_us=rules.every * _SECOND_US
    )


def _aggregate(number: int, name: str, function: AggregateFunction) -> WindowAggregate:
    is_percentile = function is AggregateFunction.APPROX_PERCENTILE
    is_float = is_percentile or function is AggregateFunction.STDDEV
    kind = "double precision" if is_float else "bigint"
    return WindowAggregate(
        column=Column(name=name, postgres_type=kind),
        function=function,
        number=number,
        partial_type=kind,
        fraction=0.5 if is_percentile else None,
    )


def _instant(second: int | None) -> datetime | None:
    return None if second is None else _START + timedelta(seconds=second)
