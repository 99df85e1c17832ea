"""Staging that measures its copying, and notes hot keys and the newest rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

import pyarrow as pa

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter
from tallyweir.sinks.postgres.staging.task_staging import TaskStaging
from tallyweir.sinks.protocol.hot_keys import HotKeys
from tallyweir.sinks.protocol.samples import (
    NOTHING_SAMPLED,
    Samples,
    StepSample,
    join_samples,
)
from tallyweir.sinks.step_clock import StepClock
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import BoolArray, ClassifiedEvents
from tallyweir.spark_jobs.task.sampling import Sampling, sample_events, sample_staged
from tallyweir.spark_jobs.task.staged_hot_keys import find_hot_keys
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
