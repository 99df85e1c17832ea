"""Outputs with one row for each window of event time and each group in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar

from tallyweir.schemas.pipeline.checks.databases import (
    HOME,
    check_databases,
    check_split,
)
from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.names import (
    check_distinct,
    check_output_column,
    check_output_table,
)
from tallyweir.schemas.pipeline.checks.problems import (
    Problem,
    empty_value,
    raise_if_any,
    suggest,
)
from tallyweir.schemas.pipeline.expressions.expressions import (
    check_condition,
    reads_any,
)
from tallyweir.schemas.pipeline.outputs.aggregate import Aggregate
from tallyweir.schemas.pipeline.outputs.known_columns import KnownColumns
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.schemas.pipeline.outputs.window_kinds import WindowKind
from tallyweir.schemas.pipeline.outputs.window_panes import (
    Early,
    EarlyPanes,
    Panes,
    check_panes,
)

#: What its table has of event times.
_WINDOW_TIMES = ("window_start", "window_end")


class Late(StrEnum):
    """What happens to an event that comes after its window's on-time pane.

    ``REVISE`` corrects the window's row within ``allowed_lateness``; later events go to
    the late_event table. ``SIDE_TABLE`` puts all late events there, and ``DROP`` only
    counts them. With both, the row stays as it was when the watermark passed.
    """

    REVISE = "revise"
    SIDE_TABLE = "side_table"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Output):
    """One row for each window of event time and each group in it.

    Attributes:
        table: Result table; made when missing.
        windows: Kind of the windows.
        by: Columns of the event or of lookups whose values make the groups.
        aggregates: Aggregates of each group.
        allowed_lateness: How long after the on-time pane ``REVISE`` may revise.
        late: What happens to late events.
        early: When an incomplete window gets a row.
        panes: Content of its rows.
        metrics: Name of a view with one row for each window, group and aggregate.
        databases: As in ``Append``.
        shard_by: As in ``Append``, but columns of ``by``, so that all events of a
            group go to one database.
        where: As in ``Append``.
    """

    unrepeatable: ClassVar[tuple[str, str]] = (
        "aggregates windows",
        "A batch that runs again would be counted again without a trace.",
    )

    table: str
    windows: WindowKind
    by: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...]
    allowed_lateness: timedelta = timedelta()
    late: Late = Late.REVISE
    early: EarlyPanes = Early.BATCH
    panes: Panes = Panes.ACCUMULATING
    metrics: str | None = None
    databases: tuple[str, ...] = (HOME,)
    shard_by: tuple[str, ...] = ()
    where: str | None = None

    def __post_init__(self) -> None:
        raise_if_any("Window", self._find_problems())

    @property
    def names(self) -> dict[str, str]:
        view = {} if self.metrics is None else {"metrics": self.metrics}
        return {"table": self.table, **view}

    @property
    def arguments(self) -> tuple[tuple[int, Aggregate, str], ...]:
        return tuple(
            (number, one, one.argument)
            for number, one in enumerate(self.aggregates)
            if one.argument is not None
        )

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.by

    @property
    def own_columns(self) -> tuple[str, ...]:
        return tuple(one.column for one in self.aggregates)

    def check_columns(self, known: KnownColumns) -> Iterator[Problem]:
        yield from known.check_all(self.by, "by")
        for _, aggregate, argument in self.arguments:
            for problem in known.check_expression(argument):
                yield problem.under("aggregates", aggregate.column)
        # Columns that are no fields are known to Spark only.
        for index, column in enumerate(self.by):
            yield from known.check_simple(
                column,
                ("by", index),
                why="Events can be grouped by simple values only.",
                fix="Choose another field, or compute a simple column from it in a "
                "transform.",
            )

    def touched_columns(
        self, touched: Collection[str], event_time: str
    ) -> Iterator[str]:
        for _, aggregate, argument in self.arguments:
            if reads_any(argument, touched):
                yield aggregate.column
        if event_time in touched:
            yield from _WINDOW_TIMES

    def _find_problems(self) -> Iterator[Problem]:
        for problem in check_condition(self.where):
            yield problem.under("where")
        yield from check_output_table(self.table, ("table",))
        if self.metrics is not None:
            yield from check_output_table(self.metrics, ("metrics",))
        for index, column in enumerate(self.by):
            yield from check_output_column(column, ("by", index))
        if not self.aggregates:
            yield empty_value(("aggregates",))
        columns = [*self.by, *(aggregate.column for aggregate in self.aggregates)]
        yield from check_distinct(columns, "columns", ())
        yield from check_duration(self.allowed_lateness, ("allowed_lateness",))
        yield from check_panes(self.windows, self.early, self.panes)
        yield from check_databases(self.databases, ("databases",))
        yield from check_split(self.databases, self.shard_by)
        for index, column in enumerate(self.shard_by):
            if column not in self.by:
                yield Problem(
                    code="PIPELINE_UNKNOWN_COLUMN",
                    at=("shard_by", index),
                    saw=f"by does not list {column!r}.",
                    why="All events of a group must go to one database.",
                    fix=suggest(column, self.by),
                )
