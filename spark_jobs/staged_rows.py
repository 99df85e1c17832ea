"""The rows that a task copies to staging, made from its classified events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sinks.postgres.outputs import AppendTable, HomeLayout, LatePolicy, WindowTable
from sinks.postgres.staging import EVENT_LOGS, StagingWriter
from sinks.protocol.votes import OutputTally
from sinks.seen_ids.run import Run
from spark_jobs import event_frame as frame
from spark_jobs.event_classes import BoolArray, ClassifiedEvents, EventClass
from spark_jobs.window_partials import (
    aggregate_windows,
    find_late,
    find_revising,
    window_starts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """Writes what became of a task's events.

    Attributes:
        events: The events; lateness is decided here, where the outputs are known.
        layout: The pipeline's tables.
        topic: Where the events come from.
        watermark_us: What lateness is judged by.
    """

    events: ClassifiedEvents
    layout: HomeLayout
    topic: str
    watermark_us: int | None

    def write(
        self, writer: StagingWriter, runs: Sequence[Run]
    ) -> dict[str, OutputTally]:
        """Copy every row to its staging table; return what each output took."""
        self._mark_late()
        tallies: dict[str, OutputTally] = {}
        for number, output in enumerate(self.layout.outputs):
            if isinstance(output, AppendTable):
                tallies[output.table] = self._write_append(writer, output)
            else:
                tallies[output.table] = self._write_windows(writer, output, number)
        self._write_event_logs(writer)
        self._write_runs(writer, runs)
        return tallies

    def _mark_late(self) -> None:
        """Call an event late when every output is too late for it."""
        windows = [o for o in self.layout.outputs if isinstance(o, WindowTable)]
        if len(windows) < len(self.layout.outputs):
            return
        late = self.events.is_class(EventClass.COMMITTED)
        for output in windows:
            starts = window_starts(self.events.event_time_us, output.size_us)
            late &= find_late(starts, output, self.watermark_us)
        self.events.classes[late] = EventClass.LATE

    def _write_append(self, writer: StagingWriter, output: AppendTable) -> OutputTally:
        committed = self.events.is_class(EventClass.COMMITTED)
        wanted = [column.name for column in output.event_columns]
        chosen = _filter(
            self.events.table.select([*wanted, frame.PARTITION, frame.OFFSET]),
            committed,
        )
        columns = [chosen.column(name) for name in wanted]
        columns += self._positions(chosen)
        rows = pa.table(columns, names=[column.name for column in output.columns])
        writer.copy(output.staging_table, output.columns, rows)
        return OutputTally(events=rows.num_rows, rows=rows.num_rows)

    def _write_windows(
        self, writer: StagingWriter, output: WindowTable, number: int
    ) -> OutputTally:
        starts = window_starts(self.events.event_time_us, output.size_us)
        candidates = self.events.is_class(EventClass.COMMITTED)
        candidates |= self.events.is_class(EventClass.LATE)
        late = candidates & find_late(starts, output, self.watermark_us)
        taken = candidates & ~late
        events = int(np.count_nonzero(taken))
        rows = 0
        if events:
            partials = aggregate_windows(
                _filter(self.events.table, taken), starts[taken], output, number
            )
            rows = partials.num_rows
            writer.copy(output.staging_table, output.staging_columns, partials)
        if output.late is not LatePolicy.DROP:
            self._write_late(writer, output, late)
        revising = taken & find_revising(starts, output, self.watermark_us)
        return OutputTally(
            events=events,
            rows=rows,
            late=int(np.count_nonzero(late)),
            revised=int(np.count_nonzero(revising)),
        )

    def _write_late(
        self, writer: StagingWriter, output: WindowTable, late: BoolArray
    ) -> None:
        chosen = self.events.table.filter(pa.array(late))
        if not chosen.num_rows:
            return
        self._copy_log(
            writer,
            "late_event",
            [
                _constant(output.table, chosen.num_rows),
                *self._positions(chosen),
                _id_text(chosen),
                chosen.column(frame.EVENT_TIME),
                chosen.column(frame.VALUE),
            ],
        )

    def _write_event_logs(self, writer: StagingWriter) -> None:
        table = self.events.table
        expired = table.filter(pa.array(self.events.is_class(EventClass.EXPIRED)))
        if expired.num_rows:
            times, values = (
                expired.column(frame.EVENT_TIME),
                expired.column(frame.VALUE),
            )
            self._copy_log(
                writer,
                "expired_event",
                [*self._positions(expired), _id_text(expired), times, values],
            )
        repeats = table.filter(pa.array(self.events.is_class(EventClass.DUPLICATE)))
        if repeats.num_rows:
            self._copy_log(
                writer,
                "duplicate_event",
                [*self._positions(repeats), _id_text(repeats)],
            )
        if self.events.reasons:
            self._write_dead(writer)

    def _write_dead(self, writer: StagingWriter) -> None:
        rows = sorted(self.events.reasons)
        dead = self.events.table.take(pa.array(rows))
        reasons = [self.events.reasons[row] for row in rows]
        self._copy_log(
            writer,
            "dead_letter",
            [
                *self._positions(dead),
                dead.column(frame.TIMESTAMP),
                pa.array([reason for reason, _ in reasons]),
                pa.array([detail for _, detail in reasons]),
                _readable_ids(dead),
                dead.column(frame.KEY),
                dead.column(frame.VALUE),
            ],
        )

    def _write_runs(self, writer: StagingWriter, runs: Sequence[Run]) -> None:
        if not runs:
            return
        encoded = [run.encode() for run in runs]
        self._copy_log(
            writer,
            "seen_id_run",
            [
                pa.array([run.bucket for run in runs], pa.int64()),
                pa.array([run.shard for run in runs], pa.int32()),
                pa.array([len(run) for run in runs], pa.int32()),
                pa.array([run.first for run in runs], pa.binary()),
                pa.array([run.last for run in runs], pa.binary()),
                pa.array([fingerprints for fingerprints, _ in encoded], pa.binary()),
                pa.array([hashes for _, hashes in encoded], pa.binary()),
            ],
        )

    def _copy_log(
        self, writer: StagingWriter, table: str, columns: list[pa.ChunkedArray]
    ) -> None:
        names = [column.name for column in EVENT_LOGS[table]]
        writer.copy(table, EVENT_LOGS[table], pa.table(columns, names=names))

    def _positions(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        return [
            _constant(self.topic, rows.num_rows),
            rows.column(frame.PARTITION),
            rows.column(frame.OFFSET),
        ]


def _filter(table: pa.Table, chosen: BoolArray) -> pa.Table:
    return table if chosen.all() else table.filter(pa.array(chosen))


def _constant(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), rows)


def _id_text(rows: pa.Table) -> pa.ChunkedArray:
    """Write the producers' IDs as text, for people to search by."""
    identity = rows.column(frame.EVENT_ID)
    if pa.types.is_binary(identity.type):
        return pa.chunked_array([[value.hex() for value in identity.to_pylist()]])
    return identity.cast(pa.string())


def _readable_ids(rows: pa.Table) -> pa.Array:
    """Write the IDs of dead letters, as far as there are any that can be read."""
    identity = rows.column(frame.EVENT_ID)
    if pa.types.is_string(identity.type):
        identity = identity.cast(pa.binary())
    return pa.array([_readable(value) for value in identity.to_pylist()], pa.string())


def _readable(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, bytes):
        return str(value)
    return value.decode("utf-8", errors="replace").replace("\x00", "\ufffd")[:256]
