"""The rows that a task copies to staging, made from its classified events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.key_text import format_key, shard_of
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.outbox_table import OutboxTable
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.staging.corrections import CORRECTION, correction_columns
from tallyweir.sinks.postgres.staging.staging_tables import EVENT_LOGS, SKIPPED
from tallyweir.sinks.postgres.staging.staging_writer import TakesRows
from tallyweir.sinks.protocol.votes import OutputTally
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.step_clock import StepClock
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.verdicts import ERASED
from tallyweir.spark_jobs.task.window_assignment import Assigned, assign_chosen
from tallyweir.spark_jobs.task.window_partials import (
    aggregate_windows,
    find_late,
    find_revising,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """Copies the rows of a task's events to staging, by the fates of the events.

    Attributes:
        events: The task's events, with their final fates.
        layout: The pipeline's tables.
        places: The topics and partitions behind the frame's place numbers.
        watermark_us: The watermark, which closes windows.
        filter_conditions: The conditions that filtered events name by number.
        clock: The task's clock.
    """

    events: ClassifiedEvents
    layout: PipelineLayout
    places: SourcePlaces
    watermark_us: int | None
    filter_conditions: tuple[str, ...] = ()
    clock: StepClock = field(default_factory=StepClock)

    def write(self, staging: TakesRows, runs: Sequence[Run]) -> dict[str, OutputTally]:
        """Copy every row to its staging table; return what each output took."""
        tallies: dict[str, OutputTally] = {}
        for number, output in enumerate(self.layout.outputs):
            tallies[output.table] = self.write_output(output, staging, number)
        self._write_event_logs(staging)
        self._write_corrections(staging)
        write_runs(staging, runs)
        return tallies

    def taken_by(self, number: int) -> BoolArray:
        """Tell which events an output takes, by its number in the pipeline."""
        committed = self.events.is_class(EventClass.COMMITTED)
        return committed & self.events.is_wanted_by(number)

    def tally(self, number: int, taken: BoolArray, rows: int) -> OutputTally:
        """Count what an output took; add a checksum if the output has a condition.

        Args:
            number: The output's number in its pipeline.
            taken: The events that it took.
            rows: The rows that were staged for it.
        """
        checksum = None
        if named.wanted_column(number) in self.events.table.column_names:
            checksum = self.events.checksum(taken)
        events = int(np.count_nonzero(taken))
        return OutputTally(events=events, rows=rows, checksum=checksum)

    @singledispatchmethod
    def write_output(
        self, output: Output, staging: TakesRows, number: int
    ) -> OutputTally:
        """Stage the rows of one output; each kind registers its own function.

        Args:
            output: The output.
            staging: Takes the rows.
            number: The output's number in its pipeline.

        Returns:
            What the output took.
        """
        del staging
        raise TypeError(f"output {number} is not staged: {output!r}")

    @write_output.register
    def _write_append(
        self, output: AppendTable, staging: TakesRows, number: int
    ) -> OutputTally:
        taken = self.taken_by(number)
        wanted = [column.name for column in output.event_columns]
        events = self.events.table.select([*wanted, named.PLACE, named.OFFSET])
        written = 0
        for branch, part in self._split(output, number, taken):
            chosen = _filter(events, part)
            columns = [chosen.column(name) for name in wanted]
            columns += self.positions(chosen)
            rows = pa.table(columns, names=[column.name for column in output.columns])
            if output.copied_by_tasks:
                staging.copy_results(output, rows)
            else:
                staging.copy(branch, output.staging_table, output.columns, rows)
            written += rows.num_rows
        return self.tally(number, taken, written)

    @write_output.register
    def _write_outbox(
        self, output: OutboxTable, staging: TakesRows, number: int
    ) -> OutputTally:
        taken = self.taken_by(number)
        chosen = _filter(self.events.table, taken)
        columns = [chosen.column(field.name) for field in output.fields]
        columns += [chosen.column(output.key.name), id_text(chosen)]
        columns += self.positions(chosen)
        names = [column.name for column in output.staging_columns]
        rows = pa.table(columns, names=names)
        staging.copy(HOME, output.staging_table, output.staging_columns, rows)
        return self.tally(number, taken, rows.num_rows)

    @write_output.register
    def _write_keyed(
        self, output: KeyedTable, staging: TakesRows, number: int
    ) -> OutputTally:
        """Stage the events of a function; phase 2b turns them into rows."""
        taken = self.taken_by(number)
        chosen = _filter(self.events.table, taken)
        parts = [chosen.column(column.name).to_pylist() for column in output.key]
        keys = [format_key(values) for values in zip(*parts, strict=True)]
        shards = {key: shard_of(key, self.layout.shards) for key in set(keys)}
        columns = [chosen.column(column.name) for column in output.event_columns]
        columns += [*self.positions(chosen), chosen.column(named.EVENT_TIME)]
        columns += [pa.array(keys, pa.string())]
        columns += [pa.array([shards[key] for key in keys], pa.int32())]
        names = [column.name for column in output.staging_columns]
        rows = pa.table(columns, names=names)
        staging.copy(HOME, output.staging_table, output.staging_columns, rows)
        return self.tally(number, taken, 0)

    @write_output.register
    def _write_windows(
        self, output: WindowTable, staging: TakesRows, number: int
    ) -> OutputTally:
        with self.clock.spent_on("windows") as windows:
            tally = self._write_partials(output, staging, number)
            windows.rows_in += tally.events
            windows.rows_out += tally.rows
        return tally

    def _write_partials(
        self, output: WindowTable, staging: TakesRows, number: int
    ) -> OutputTally:
        candidates = self.events.is_class(EventClass.COMMITTED)
        candidates |= self.events.is_class(EventClass.LATE)
        candidates &= self.events.is_wanted_by(number)
        assigned = assign_chosen(self.events.event_time_us, candidates, output.windows)
        is_late = find_late(assigned.ends, output, self.watermark_us)
        # An event may be late for some sliding windows and in time for others.
        late = self._events_of(assigned.choose(is_late))
        open_windows = assigned.choose(~is_late)
        taken = self._events_of(open_windows)
        written = 0
        for branch, part in self._split(output, number, taken):
            if not part.any():
                continue
            partials = aggregate_windows(
                self.events.table,
                open_windows.choose(part[open_windows.rows]),
                output,
                number,
            )
            columns = output.staging_columns
            staging.copy(branch, output.staging_table, columns, partials)
            written += partials.num_rows
        if output.keeps_late:
            self._write_late(staging, output, late)
        passed = find_revising(open_windows.ends, self.watermark_us)
        revising = self._events_of(open_windows.choose(passed))
        return replace(
            self.tally(number, taken, written),
            late=int(np.count_nonzero(late)),
            revised=int(np.count_nonzero(revising)),
        )

    def _events_of(self, assigned: Assigned) -> BoolArray:
        found = np.zeros(len(self.events.classes), dtype=np.bool_)
        found[assigned.rows] = True
        return found

    def _split(
        self, output: Output, number: int, events: BoolArray
    ) -> Iterator[tuple[str, BoolArray]]:
        """Yield each branch of an output with its share of the events."""
        branches = output.branches
        if len(branches) == 1:
            yield branches[0], events
            return
        column = named.branch_column(number)
        if column in self.events.table.column_names:
            chosen = np.asarray(self.events.array(column))
        else:
            chosen = spread_evenly(
                np.asarray(self.events.array(named.PLACE)),
                np.asarray(self.events.array(named.OFFSET)),
                len(branches),
            )
        assert chosen.min() >= 0, "an event of no branch would be lost"
        assert chosen.max() < len(branches), "an event of no branch would be lost"
        for index, branch in enumerate(branches):
            yield branch, events & (chosen == index)

    def _write_late(
        self, staging: TakesRows, output: WindowTable, late: BoolArray
    ) -> None:
        chosen = self.events.table.filter(pa.array(late))
        if not chosen.num_rows:
            return
        _copy_log(
            staging,
            "late_event",
            [
                _constant(output.table, chosen.num_rows),
                *self.positions(chosen),
                id_text(chosen),
                chosen.column(named.EVENT_TIME),
                _payloads(chosen),
            ],
        )

    def _write_event_logs(self, staging: TakesRows) -> None:
        table = self.events.table
        expired = table.filter(pa.array(self.events.is_class(EventClass.EXPIRED)))
        if expired.num_rows:
            times, values = (
                expired.column(named.EVENT_TIME),
                _payloads(expired),
            )
            _copy_log(
                staging,
                "expired_event",
                [*self.positions(expired), id_text(expired), times, values],
            )
        repeats = table.filter(pa.array(self.events.is_class(EventClass.DUPLICATE)))
        if repeats.num_rows:
            _copy_log(
                staging,
                "duplicate_event",
                [*self.positions(repeats), id_text(repeats)],
            )
        self._write_filtered(staging)
        if self.events.reasons:
            self._write_dead(staging)

    def _write_filtered(self, staging: TakesRows) -> None:
        chosen = self.events.is_class(EventClass.FILTERED)
        if not chosen.any():
            return
        filtered = self.events.table.filter(pa.array(chosen))
        erased = pa.array(self.events.is_erased()[chosen])
        ids, reasons = id_text(filtered), self._conditions(filtered)
        if self.events.erased.size:
            ids = pc.if_else(erased, pa.scalar(None, pa.string()), ids)
            reasons = pc.if_else(erased, ERASED, reasons)
        _copy_log(staging, "filtered_event", [*self.positions(filtered), ids, reasons])

    def _conditions(self, filtered: pa.Table) -> pa.Array:
        """Return the condition that each event fails; null if it fails no condition."""
        failed = pa.nulls(filtered.num_rows, pa.string())
        if named.FILTERED_BY in filtered.column_names:
            numbers = filtered.column(named.FILTERED_BY).combine_chunks()
            failed = pa.array(self.filter_conditions, pa.string()).take(numbers)
        if named.SKIPPED in filtered.column_names:
            what = filtered.column(named.SKIPPED).combine_chunks()
            told = pc.binary_join_element_wise(SKIPPED, what, "")
            failed = pc.coalesce(told, failed)
        return failed

    def _write_dead(self, staging: TakesRows) -> None:
        rows = sorted(self.events.reasons)
        dead = self.events.table.take(pa.array(rows))
        reasons = [self.events.reasons[row] for row in rows]
        _copy_log(
            staging,
            "dead_letter",
            [
                *self.positions(dead),
                dead.column(named.TIMESTAMP),
                pa.array([reason for reason, _ in reasons]),
                pa.array([_storable(detail) for _, detail in reasons]),
                readable_ids(dead, [self.events.read_ids.get(row) for row in rows]),
                dead.column(named.KEY),
                _payloads(dead),
            ],
        )

    def _write_corrections(self, staging: TakesRows) -> None:
        rows = self.events.corrections
        if not rows.size:
            return
        assert self.layout.corrected_by is not None
        columns = correction_columns(self.layout.corrected_by)
        chosen = self.events.table.take(pa.array(rows))
        is_filtered = self.events.classes[rows] == EventClass.FILTERED
        corrections = pa.table(
            [chosen.column(named.EVENT_ID), id_text(chosen), pa.array(is_filtered)],
            names=[column.name for column in columns],
        )
        staging.copy(HOME, CORRECTION, columns, corrections)

    def positions(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Return the columns of the positions of some events, as outputs name them."""
        topics, partitions = self.places.split(np.asarray(rows.column(named.PLACE)))
        return [topics, partitions, rows.column(named.OFFSET)]


def write_runs(staging: TakesRows, runs: Sequence[Run]) -> None:
    """Copy the IDs that a task has claimed to staging, for the catalog."""
    if not runs:
        return
    encoded = [run.encode() for run in runs]
    _copy_log(
        staging,
        "seen_id_run",
        [
            pa.array([run.bucket for run in runs], pa.int64()),
            pa.array([len(run) for run in runs], pa.int32()),
            pa.array([run.first for run in runs], pa.binary()),
            pa.array([run.last for run in runs], pa.binary()),
            pa.array([fingerprints for fingerprints, _ in encoded], pa.binary()),
            pa.array([hashes for _, hashes in encoded], pa.binary()),
        ],
    )


def _copy_log(
    staging: TakesRows, table: str, columns: list[pa.Array | pa.ChunkedArray]
) -> None:
    names = [column.name for column in EVENT_LOGS[table]]
    rows = pa.table(columns, names=names)
    staging.copy(HOME, table, EVENT_LOGS[table], rows)


def _filter(table: pa.Table, chosen: BoolArray) -> pa.Table:
    return table if chosen.all() else table.filter(pa.array(chosen))


def _constant(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), rows)


def _payloads(rows: pa.Table) -> pa.ChunkedArray:
    """Return the records as they arrived: Kafka's values, or the rows of a file."""
    is_of_file = named.ORIGINAL in rows.column_names
    return rows.column(named.ORIGINAL if is_of_file else named.VALUE)


#: Odd, near 2**64 over the golden ratio: multiples of it spread evenly over 64 bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: Makes partitions choose differently for the same offset.
_PLACE_STEP = np.uint64(0xC2B2AE3D27D4EB4F)


def spread_evenly(places: I64Array, offsets: I64Array, ways: int) -> I64Array:
    """Choose one of several ways for each event, by its position in Kafka only.

    Offsets may come in steps, for example if each transaction has one event and a
    marker. Multiplication spreads any steps; a remainder of the offset would not.
    """
    mixed = offsets.astype(np.uint64) + places.astype(np.uint64) * _PLACE_STEP
    high = (mixed * _SPREAD) >> np.uint64(32)
    return (high % np.uint64(ways)).astype(np.int64)


def id_text(rows: pa.Table) -> pa.ChunkedArray:
    """Write the producers' IDs as text, for people to search by."""
    identity = rows.column(named.EVENT_ID)
    if pa.types.is_binary(identity.type):
        return pa.chunked_array([[value.hex() for value in identity.to_pylist()]])
    return identity.cast(pa.string())


def readable_ids(rows: pa.Table, read: Sequence[object]) -> pa.Array:
    """Write the IDs of dead letters as text; null where no ID could be read.

    Args:
        rows: The dead letters.
        read: IDs that were read from rows that are not events; None for other rows.
    """
    identity = rows.column(named.EVENT_ID)
    if pa.types.is_string(identity.type):
        identity = identity.cast(pa.binary())
    values = zip(identity.to_pylist(), read, strict=True)
    return pa.array([_readable(i if r is None else r) for i, r in values], pa.string())


def _readable(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    return _storable(str(value))[:256]


def _storable(text: str) -> str:
    """Replace what no text of Postgres holds: NUL, and half of a surrogate pair."""
    return text.replace("\x00", "\ufffd").encode(errors="replace").decode()
