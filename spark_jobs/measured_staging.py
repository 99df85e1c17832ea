"""Staging that measures what copying takes, and sees which keys are hot."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import pyarrow as pa

from sinks.postgres.append_table import AppendTable
from sinks.postgres.columns import Column
from sinks.postgres.home_layout import HomeLayout
from sinks.postgres.staging import StagingWriter
from sinks.postgres.task_staging import TaskStaging
from sinks.protocol.hot_keys import HotKeys
from sinks.step_clock import StepClock
from spark_jobs.hot_keys import find_hot_keys

#: The step that copies rows to staging, its COMMIT included.
COPY = "copy"


class MeasuredStaging(TaskStaging):
    """``TaskStaging``, by a task's clock.

    Args:
        open_writer: As of ``TaskStaging``.
        clock: The task's.
        layout: The pipeline's tables.
    """

    def __init__(
        self,
        open_writer: Callable[[str], StagingWriter],
        clock: StepClock,
        layout: HomeLayout,
    ) -> None:
        super().__init__(open_writer)
        self._clock = clock
        self._layout = layout
        #: By output; with several branches, of all of them.
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

    def copy_results(self, output: AppendTable, rows: pa.Table) -> None:
        """Copy and measure; see ``TaskStaging``."""
        with self._clock.spent_on(COPY) as copy:
            super().copy_results(output, rows)
            copy.rows_out += rows.num_rows
            copy.bytes += rows.nbytes
