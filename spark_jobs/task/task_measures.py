"""What a task measures: its copying, and its events' ages, hot keys and own figures.

``MeasuredStaging`` measures the copying, and notes hot keys and the newest rows.

Spark runs a transform in its workers, and may run it again, so a transform cannot
report figures itself. It adds a column, and the task that stages the events adds that
column up. The figures travel with the task's vote and are committed with the batch,
like those of functions on keyed state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, NumericType, StructType

from tallyweir.schemas.pipeline.events.monitoring import Reported
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.keyed_table import KEY
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_columns import WINDOW_EVENTS
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter, TaskStaging
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.measures import (
    BUCKETS_TO_A_POWER,
    KEYS_KEPT,
    HotKeys,
    Measures,
    distribution_of,
    hottest,
)
from tallyweir.sinks.protocol.samples import (
    NOTHING_SAMPLED,
    Samples,
    StepSample,
    join_samples,
)
from tallyweir.sinks.seen_ids.ordering import BoolArray
from tallyweir.sinks.step_clock import StepClock
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.sampling import Sampling, sample_events, sample_staged
from tallyweir.spark_jobs.task.verdicts import Rules

#: The step that copies rows to staging, including its COMMIT.
COPY = "copy"


class MeasuredStaging(TaskStaging):
    """A ``TaskStaging`` that measures its work by the task's clock.

    Args:
        open_writer: As for ``TaskStaging``.
        clock: The task's clock.
        layout: The pipeline's tables.
        sampling: Which rows to keep as samples; None to keep none.
    """

    def __init__(
        self,
        open_writer: Callable[[str], StagingWriter],
        clock: StepClock,
        layout: PipelineLayout,
        sampling: Sampling | None,
    ) -> None:
        super().__init__(open_writer)
        self._clock = clock
        self._layout = layout
        self._sampling = sampling
        self._sampled: list[StepSample] = []
        #: Hot keys by output, over all branches of the output.
        self.hot_keys: dict[str, HotKeys] = {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._clock.spent_on(COPY):
            super().__exit__(kind, error, trace)

    def copy(
        self, branch: str, table: str, columns: tuple[Column, ...], rows: pa.Table
    ) -> None:
        """Copy and measure; see ``TaskStaging``."""
        with self._clock.spent_on(COPY) as copy:
            super().copy(branch, table, columns, rows)
            copy.rows_out += rows.num_rows
            copy.bytes += rows.nbytes
        for output, found in find_hot_keys(self._layout, table, rows).items():
            self.hot_keys[output] = self.hot_keys.get(output, HotKeys()) + found
        self._sampled += sample_staged(self._sampling, self._layout, table, rows)

    def copy_results(self, output: AppendTable, rows: pa.Table) -> None:
        """Copy and measure; see ``TaskStaging``."""
        with self._clock.spent_on(COPY) as copy:
            super().copy_results(output, rows)
            copy.rows_out += rows.num_rows
            copy.bytes += rows.nbytes
        staging_table = output.staging_table
        self._sampled += sample_staged(
            self._sampling, self._layout, staging_table, rows
        )

    def samples_with(
        self,
        events: ClassifiedEvents,
        is_event: BoolArray,
        rules: Rules,
        places: SourcePlaces,
    ) -> Samples:
        """Return the newest copied rows, and the newest events of the steps before.

        Args:
            events: The task's events, with their final fates.
            is_event: Which rows decode.
            rules: The rules that the events were judged by.
            places: The topics and partitions behind the frame's place numbers.
        """
        if self._sampling is None:
            return NOTHING_SAMPLED
        passed = sample_events(
            self._sampling, events, is_event, rules.contracts, places
        )
        # Each branch of an output has a sample of its own.
        each = [replace(passed, steps=(one,)) for one in self._sampled]
        return join_samples((passed, *each))


_MILLISECONDS = 1e-3


def ages_of(events: ClassifiedEvents, planned_at_us: int) -> dict[int, int]:
    """Count the committed events of a task by their age when the batch was planned.

    Records without a timestamp, which Kafka shows as a negative one, are left out.

    Args:
        events: The task's events, with their final fates.
        planned_at_us: When the batch was planned, by the home's clock.
    """
    column = events.array(named.TIMESTAMP).cast(pa.int64())
    if column.null_count:
        column = column.fill_null(-1)
    times_us = np.asarray(column)
    counted = events.is_class(EventClass.COMMITTED) & (times_us >= 0)
    if not counted.all():
        times_us = times_us[counted]
    # Seven digits are enough to find a bucket; their logarithms take a tenth of the
    # time.
    ages_ms = ((planned_at_us - times_us) * _MILLISECONDS).astype(np.float32)
    np.maximum(ages_ms, np.float32(1), out=ages_ms)
    np.log2(ages_ms, out=ages_ms)
    ages_ms *= np.float32(BUCKETS_TO_A_POWER)
    counts = np.bincount(np.ceil(ages_ms, out=ages_ms).astype(np.int64))
    filled = np.flatnonzero(counts)
    return dict(zip(filled.tolist(), counts[filled].tolist(), strict=True))


def check_reported(reported: Reported, schema: StructType) -> None:
    """Refuse figures from columns that no event has, or that cannot be added up.

    Raises:
        ConfigurationError: ``REPORTED_COLUMN``.
    """
    types = {field.name: field.dataType for field in schema.fields}
    for name in sorted(reported.columns):
        kind = types.get(name)
        if isinstance(kind, NumericType | BooleanType):
            continue
        found = "no event has it" if kind is None else f"it is {kind.simpleString()}"
        raise ConfigurationError(
            "REPORTED_COLUMN",
            saw=f"The pipeline takes figures from the column {name}, and {found}.",
            why="Figures can only be added up from numbers and booleans.",
            fix="Name a field of the event, or a column that the transform adds.",
        )


def figures_of(events: ClassifiedEvents, reported: Reported) -> Measures:
    """Add up what the committed events of a task report.

    A value that is null or not finite counts nothing; a counter also ignores values
    below zero.
    """
    committed = pa.array(events.is_class(EventClass.COMMITTED))

    def values(column: str) -> pa.Array:
        found = events.array(column).filter(committed)
        if pa.types.is_boolean(found.type):
            found = found.cast(pa.int8())
        found = found.cast(pa.float64())
        return found.filter(pc.is_finite(found)).drop_null()

    counts = {}
    for name, column in reported.counters.items():
        found = values(column)
        counts[name] = pc.sum(found.filter(pc.greater_equal(found, 0))).as_py() or 0
    return Measures(
        counts=counts,
        distributions={
            name: distribution_of(values(column).to_pylist())
            for name, column in reported.distributions.items()
        },
    )


_HIDDEN_BYTES = 6


def find_hot_keys(
    layout: PipelineLayout, table: str, rows: pa.Table
) -> dict[str, HotKeys]:
    """Find the hottest keys among rows that are about to be staged.

    Args:
        layout: The pipeline's tables.
        table: The staging table. Only tables of windows and keyed state have hot keys.
        rows: The rows for that table.

    Returns:
        The hot keys by the output's table; at most one entry.
    """
    for output in layout.outputs:
        if output.staging_table != table or not rows.num_rows:
            continue
        if output.index_key:
            by = [column.name for column in output.index_key]
            return {output.table: _of_partials(rows, by)}
        if output.text_key:
            return {output.table: _of_events(rows.column(KEY.name))}
    return {}


def hide_keys(found: Mapping[str, HotKeys], secret: bytes) -> dict[str, HotKeys]:
    """Replace keys by hashes, because a key may be a person's name.

    Args:
        found: Hot keys by output.
        secret: The installation's secret, so that trying keys does not reveal one.
    """

    def hidden(key: str) -> str:
        digest = hashlib.blake2b(
            key.encode(), key=secret, digest_size=_HIDDEN_BYTES, person=b"hot keys"
        )
        return f"#{digest.hexdigest()}"

    return {
        output: HotKeys(
            events=one.events,
            keys={hidden(key): events for key, events in one.keys.items()},
        )
        for output, one in found.items()
    }


def _of_partials(rows: pa.Table, by: list[str]) -> HotKeys:
    """Look at the groups with the most events; one key may have several groups."""
    events = WINDOW_EVENTS.column.name
    chosen = pc.select_k_unstable(rows, KEYS_KEPT, [(events, "descending")])
    keys: dict[str, int] = {}
    for row in rows.select([*by, events]).take(chosen).to_pylist():
        key = json.dumps([row[name] for name in by], default=str, ensure_ascii=False)
        keys[key] = keys.get(key, 0) + row[events]
    return HotKeys(events=pc.sum(rows.column(events)).as_py(), keys=hottest(keys))


def _of_events(keys: pa.ChunkedArray) -> HotKeys:
    counted = pc.value_counts(keys).flatten()
    found = dict(zip(counted[0].to_pylist(), counted[1].to_pylist(), strict=True))
    return HotKeys(events=len(keys), keys=hottest(found))
