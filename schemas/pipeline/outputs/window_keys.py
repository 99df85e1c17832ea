"""The keys of a window output in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from operator import add
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from tallyweir.schemas.pipeline.checks.databases import HOME
from tallyweir.schemas.pipeline.checks.problems import Path, PipelineError, Problem
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
from tallyweir.schemas.pipeline.document.problem_report import Report
from tallyweir.schemas.pipeline.outputs.aggregate import (
    Aggregate,
    AggregateFunction,
    parse_aggregate,
)
from tallyweir.schemas.pipeline.outputs.window import Late, Window
from tallyweir.schemas.pipeline.outputs.window_kinds import (
    UTC,
    Fixed,
    Session,
    SessionKeys,
    Sliding,
    SlidingKeys,
    WindowKind,
)
from tallyweir.schemas.pipeline.outputs.window_panes import Early, EarlyPanes, Panes
from tallyweir.sinks.protocol.durations import parse_duration

_KINDS = ("fixed", "sliding", "session")


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
        json_schema_extra={"oneOf": [{"required": [kind]} for kind in _KINDS]}
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
        windows = {kind: values.pop(kind) for kind in _KINDS}
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
