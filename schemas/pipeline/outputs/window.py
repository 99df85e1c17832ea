"""Outputs with one row for each window of event time and each group in it.

Here are the kinds of windows, when their rows are shown and what the rows hold, and the
keys of such an output in a pipeline file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from operator import add
from typing import Annotated, ClassVar, TypeAlias
from zoneinfo import available_timezones

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from tallyweir.schemas.pipeline.checks.databases import (
    HOME,
    check_databases,
    check_split,
)
from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.names import (
    check_distinct,
    check_event_column,
    check_output_table,
)
from tallyweir.schemas.pipeline.checks.problems import (
    Path,
    PipelineError,
    Problem,
    empty_value,
    raise_if_any,
    suggest,
)
from tallyweir.schemas.pipeline.document.file_keys import (
    Condition,
    Duration,
    Expressions,
    Given,
    Info,
    Keys,
    OneOrMore,
    Text,
    Texts,
    is_off,
    read_text,
    reject,
    unnamed,
    word,
)
from tallyweir.schemas.pipeline.document.yaml_tree import Report
from tallyweir.schemas.pipeline.expressions.expressions import (
    check_condition,
    reads_any,
)
from tallyweir.schemas.pipeline.outputs.aggregate import (
    Aggregate,
    AggregateFunction,
    parse_aggregate,
)
from tallyweir.schemas.pipeline.outputs.pipeline_output import KnownColumns, Output
from tallyweir.sinks.protocol.column_names import stored_name
from tallyweir.sinks.protocol.durations import parse_duration

UTC = "UTC"

_HOUR = timedelta(hours=1)

#: Most windows of an event, so that one event cannot make unlimited rows.
WINDOWS_OF_AN_EVENT_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Windows of one size, each of which begins where the one before ends.

    Attributes:
        size: Length of the window.
        time_zone: Windows begin by the clock of this zone, at multiples of the size
            since 1970-01-01 00:00. Windows longer than an hour follow that clock, so a
            day has 23 or 25 hours when the clock changes.
    """

    size: timedelta
    time_zone: str = UTC

    def __post_init__(self) -> None:
        raise_if_any("Fixed", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_duration(self.size, ("size",), zero=False)
        yield from _check_time_zone(self.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding:
    """Overlapping windows: one begins at each ``every``; an event is in several.

    Attributes:
        size: Length of the window.
        every: Time from the start of one window to the start of the next.
        time_zone: As in ``Fixed``, but ``every`` decides whether windows follow the
            clock.
    """

    size: timedelta
    every: timedelta
    time_zone: str = UTC

    def __post_init__(self) -> None:
        raise_if_any("Sliding", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_duration(self.size, ("size",), zero=False)
        yield from check_duration(self.every, ("every",), zero=False)
        yield from _check_time_zone(self.time_zone)
        if not self.every:
            return
        if self.every > self.size:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("every",),
                saw="every is longer than size.",
                why="Events between two windows would not belong to any window.",
                fix="Write a shorter every, or fixed windows.",
            )
        if self.size > WINDOWS_OF_AN_EVENT_MAX * self.every:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("every",),
                saw="An event would be in more than "
                f"{WINDOWS_OF_AN_EVENT_MAX} windows.",
                why="Each window is a row.",
                fix="Write a longer every, or a shorter size.",
            )
        if self.time_zone != UTC and self.every < _HOUR and _HOUR % self.every:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("every",),
                saw="every does not divide an hour.",
                why="After a clock change, windows would no longer align with the "
                "earlier ones.",
                fix="Choose a value that divides an hour, or leave time_zone out.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Windows from the first event of a group until a gap without events.

    Attributes:
        gap: Time without events that ends a window; an event exactly one gap later
            begins another.
    """

    gap: timedelta

    def __post_init__(self) -> None:
        raise_if_any("Session", check_duration(self.gap, ("gap",), zero=False))


WindowKind = Fixed | Sliding | Session


def _check_time_zone(name: str) -> Iterator[Problem]:
    known = available_timezones()
    if name not in known:
        yield Problem(
            code="PIPELINE_VALUE",
            at=("time_zone",),
            saw=f"time_zone is {name!r}.",
            why="It must be the name of a zone in the IANA time zone database.",
            fix=suggest(name, sorted(known)),
        )


class SlidingKeys(Keys[Sliding]):
    """The keys of ``sliding``."""

    part = Sliding
    stand_ins: ClassVar[Mapping[str, object]] = {"size": _HOUR, "every": _HOUR}

    size: Duration
    every: Duration


class SessionKeys(Keys[Session]):
    """The keys of ``session``."""

    part = Session
    stand_ins: ClassVar[Mapping[str, object]] = {"gap": _HOUR}

    gap: Duration


class Early(StrEnum):
    """Whether a window gets a row before the watermark passes its end."""

    OFF = "off"
    BATCH = "batch"


#: A duration is the longest time, apart from batches, that events wait to be shown.
EarlyPanes: TypeAlias = Early | timedelta


class Panes(StrEnum):
    """The content of a window's rows.

    ``ACCUMULATING`` keeps one row for each window and group, with all its events.
    ``DISCARDING`` adds a row each time, with the events that no former row has.
    """

    ACCUMULATING = "accumulating"
    DISCARDING = "discarding"


def check_panes(
    windows: WindowKind, early: EarlyPanes, panes: Panes
) -> Iterator[Problem]:
    """Find an interval of zero, and settings that sessions cannot have."""
    if isinstance(early, timedelta):
        yield from check_duration(early, ("early",), zero=False)
    if not isinstance(windows, Session):
        return
    if isinstance(early, timedelta):
        yield Problem(
            code="PIPELINE_VALUE",
            at=("early",),
            saw="The output has both session and early: every.",
            why="A session that grows or merges replaces its earlier rows, which "
            "would be missing until the new row is shown.",
            fix="Write early: batch, or early: off.",
        )
    if panes is Panes.DISCARDING:
        yield Problem(
            code="PIPELINE_VALUE",
            at=("panes",),
            saw="The output has both session and panes: discarding.",
            why="A session may merge with others whose panes were already shown, and "
            "a reader could not tell which panes belong to it.",
            fix="Remove panes, or use fixed or sliding windows.",
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

    kind: ClassVar[str] = "window"
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
                fix="Choose another field, or compute a simple column from it.",
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
            yield from check_event_column(column, ("by", index))
        if not self.aggregates:
            yield empty_value(("aggregates",))
        columns = [*map(stored_name, self.by), *self.own_columns]
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


_WINDOW_KINDS = ("fixed", "sliding", "session")


def _early(value: Given, info: Info) -> EarlyPanes:
    """Read ``off``, ``batch`` or ``every 10 seconds``."""
    if is_off(value):
        return Early.OFF
    text = read_text(value, info)
    if text == Early.BATCH:
        return Early.BATCH
    every, _, duration = text.partition(" ")
    try:
        if every == "every":
            return parse_duration(duration)
        seen = f"early is {text!r}."
    except ValueError as error:
        seen = f"early is {text!r}: {error}."
    raise reject(
        value,
        info.context,
        seen,
        "It sets when a window that is not complete yet gets a row.",
        "Write off, batch, or every with a duration, such as every 10 seconds.",
    )


_EARLY = WithJsonSchema(
    {
        "anyOf": [
            {"enum": ["off", "batch", False]},
            {"pattern": "^every ", "type": "string"},
        ]
    }
)


class WindowKeys(Keys[Window]):
    """The keys of ``window``."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [kind]} for kind in _WINDOW_KINDS]}
    )

    part = Window
    stand_ins: ClassVar[Mapping[str, object]] = {
        "table": unnamed,
        "fixed": timedelta(hours=1),
        "sliding": SlidingKeys.unknown(),
        "session": SessionKeys.unknown(),
        "aggregate": {"unnamed": "count(*)"},
    }

    table: Text
    fixed: Duration | None = None
    sliding: SlidingKeys | None = None
    session: SessionKeys | None = None
    time_zone: Text = UTC
    aggregates: Expressions = Field(alias="aggregate")
    by: Texts = ()
    allowed_lateness: Duration = timedelta()
    late: Annotated[Late, word(Late)] = Late.REVISE
    early: Annotated[EarlyPanes, PlainValidator(_early), _EARLY] = Early.BATCH
    panes: Annotated[Panes, word(Panes)] = Panes.ACCUMULATING
    metrics: Text | None = None
    where: Condition | None = None
    databases: OneOrMore = Field(default=(HOME,), alias="database")
    shard_by: Texts = ()

    def values(self, report: Report, at: Path) -> dict[str, object]:
        """Return the values of the keys, with the windows and their aggregates."""
        values = super().values(report, at)
        del values["time_zone"]
        windows = {kind: values.pop(kind) for kind in _WINDOW_KINDS}
        given = [kind for kind, keys in windows.items() if keys is not None]
        for problem in self._find_kind_problems(given):
            report.add(problem.under(*at))
        kind = given[0] if given else "fixed"

        def in_file(path: Path) -> Path:
            if path == ("time_zone",):
                return (*at, *path)
            return (*at, kind, *(() if kind == "fixed" else path))

        with report.building(in_file):
            values["windows"] = self._in_time_zone(windows[kind])
        values["aggregates"] = tuple(self._build_aggregates(report, at))
        return values

    def _in_time_zone(self, windows: object) -> WindowKind:
        if isinstance(windows, Session):
            return windows
        if isinstance(windows, Sliding):
            return replace(windows, time_zone=self.time_zone)
        # Without a kind, there is no size either, which is reported already.
        return Fixed(size=self.fixed or timedelta(), time_zone=self.time_zone)

    def _find_kind_problems(self, given: list[str]) -> Iterator[Problem]:
        if not given:
            yield Problem(
                code="PIPELINE_MISSING_KEY",
                at=("fixed",),
                saw="The keys fixed, sliding and session are all missing.",
                why="One of them must define the windows.",
                fix="Add one, such as fixed: 1 hour.",
            )
        for kind in given[1:]:
            yield Problem(
                code="PIPELINE_VALUE",
                at=(kind,),
                saw=f"The output has both {given[0]} and {kind}.",
                why="An output can have windows of only one kind.",
                fix="Remove one, or write two outputs.",
            )
        if given[:1] == ["session"] and "time_zone" in self.model_fields_set:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("time_zone",),
                saw="The output has both session and time_zone.",
                why="Events begin and end a session; a clock does not.",
                fix="Remove time_zone.",
            )

    def _build_aggregates(self, report: Report, at: Path) -> Iterator[Aggregate]:
        """Build the aggregates; a count stands in for one that is wrong."""
        for column, text in self.aggregates.items():
            inside = (*at, "aggregate", column)
            in_file = partial(add, inside)
            with report.building(in_file):
                try:
                    aggregate = parse_aggregate(column, text)
                except PipelineError as error:
                    report.add_found(error.problems, in_file)
                    aggregate = Aggregate(
                        column=column, function=AggregateFunction.COUNT
                    )
            yield aggregate
