"""The keys of a window output in a pipeline file."""

from __future__ import annotations

from datetime import timedelta

from spark_jobs.pipeline.aggregate import Aggregate, parse_aggregate
from spark_jobs.pipeline.expression_section import read_expressions
from spark_jobs.pipeline.place_section import PLACE, read_place
from spark_jobs.pipeline.problems import suggest
from spark_jobs.pipeline.window import Late, WindowOutput
from spark_jobs.pipeline.window_kind_section import KINDS, read_kind
from spark_jobs.pipeline.yaml_document import Section


def read_window(section: Section) -> WindowOutput | None:
    """Read an output's section; None, with the problems reported, if it is wrong."""
    section.allow(
        "table",
        *KINDS,
        "time_zone",
        "aggregate",
        "by",
        "allowed_lateness",
        "late",
        *PLACE,
    )
    section.require("table", "aggregate")
    table = section.text("table")
    windows = read_kind(section)
    by = section.texts("by")
    aggregates = _read_aggregates(section)
    allowed_lateness = section.duration("allowed_lateness", timedelta())
    late = _read_late(section)
    databases, shard_by = read_place(section)
    section.report.alias((*section.at, "aggregates"), (*section.at, "aggregate"))
    if table is None or windows is None or aggregates is None:
        return None
    return section.report.attempt(
        section.at,
        WindowOutput,
        table=table,
        windows=windows,
        by=by or (),
        aggregates=aggregates,
        allowed_lateness=allowed_lateness,
        late=late,
        databases=databases,
        shard_by=shard_by,
    )


def _read_aggregates(window: Section) -> tuple[Aggregate, ...] | None:
    """Read the aggregates; None if one of them is wrong, so that none is missed."""
    section = window.section("aggregate")
    if section is None:
        return None
    aggregates = [
        section.report.attempt((*section.at, column), parse_aggregate, column, text)
        for column, text in read_expressions(section)
    ]
    read = tuple(one for one in aggregates if one is not None)
    return read if len(read) == len(list(section)) else None


def _read_late(section: Section) -> Late:
    text = section.text("late")
    known = [late.value for late in Late]
    if text is None:
        return Late.REVISE
    if text not in known:
        section.reject(
            "late",
            f"late is {text!r}.",
            f"It must be one of {', '.join(known)}.",
            suggest(text, known),
        )
        return Late.REVISE
    return Late(text)
