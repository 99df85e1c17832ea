"""The keys of a window output in a pipeline file."""

from __future__ import annotations

from datetime import timedelta

from schemas.pipeline.document.expression_section import (
    read_condition,
    read_expressions,
)
from schemas.pipeline.document.word_section import read_word
from schemas.pipeline.document.yaml_document import Section
from schemas.pipeline.outputs.aggregate import (
    Aggregate,
    AggregateFunction,
    parse_aggregate,
)
from schemas.pipeline.outputs.place_section import PLACE, read_place, stand_ins
from schemas.pipeline.outputs.window import Late, WindowOutput
from schemas.pipeline.outputs.window_kind_section import KINDS, read_kind
from schemas.pipeline.outputs.window_kinds import Fixed
from schemas.pipeline.outputs.window_panes import Early, EarlyPanes, Panes
from sinks.protocol.durations import parse_duration

_NO_AGGREGATE = (Aggregate(column="unnamed", function=AggregateFunction.COUNT),)
#: These windows are valid with every other key.
_STAND_INS = {
    "windows": Fixed(size=timedelta(hours=1)),
    "aggregates": _NO_AGGREGATE,
    "allowed_lateness": timedelta(),
    "early": Early.BATCH,
    "panes": Panes.ACCUMULATING,
    "metrics": None,
}


def read_window(section: Section) -> WindowOutput | None:
    """Read an output's section; None if it is too wrong to be checked further."""
    section.allow(
        "table",
        *KINDS,
        "time_zone",
        "aggregate",
        "by",
        "allowed_lateness",
        "late",
        "early",
        "panes",
        "metrics",
        "where",
        *PLACE,
    )
    section.require("table", "aggregate")
    table = section.text("table")
    windows = read_kind(section)
    by = section.texts("by")
    aggregates = _read_aggregates(section)
    allowed_lateness = section.duration("allowed_lateness", timedelta())
    late = read_word(section, "late", Late.REVISE)
    early = _read_early(section)
    panes = read_word(section, "panes", Panes.ACCUMULATING)
    metrics = section.text("metrics")
    databases, shard_by = read_place(section)
    where = read_condition(section, "where")
    section.report.alias((*section.at, "aggregates"), (*section.at, "aggregate"))
    return section.report.complete(
        section.at,
        WindowOutput,
        stand_ins(section) | _STAND_INS,
        table=table,
        windows=windows,
        by=by or (),
        aggregates=aggregates,
        allowed_lateness=allowed_lateness,
        late=late,
        early=early,
        panes=panes,
        metrics=metrics,
        databases=databases,
        shard_by=shard_by,
        where=where,
    )


def _read_aggregates(window: Section) -> tuple[Aggregate, ...] | None:
    """Read the aggregates, without wrong ones; None if there are none."""
    section = window.section("aggregate")
    if section is None:
        return None
    aggregates = [
        section.report.attempt((*section.at, column), parse_aggregate, column, text)
        for column, text in read_expressions(section)
    ]
    read = tuple(one for one in aggregates if one is not None)
    # The stand-in is never computed, because the file has a problem.
    return read or (_NO_AGGREGATE if list(section) else None)


def _read_early(section: Section) -> EarlyPanes:
    """Read ``off``, ``batch`` or ``every 10 seconds``."""
    if "early" not in section:
        return Early.BATCH
    if section.is_off("early"):
        return Early.OFF
    text = section.text("early")
    if text is None or text == Early.BATCH:
        return Early.BATCH
    every, _, duration = text.partition(" ")
    try:
        if every == "every":
            return parse_duration(duration)
        seen = f"early is {text!r}."
    except ValueError as error:
        seen = f"early is {text!r}: {error}."
    section.reject(
        "early",
        seen,
        "It says when a window that is not complete yet has a row.",
        "Write off, batch, or every and a duration, as in every 10 seconds.",
    )
    return Early.BATCH
