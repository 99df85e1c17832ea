"""The keys of a join output in a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from schemas.pipeline.checks.problems import StandIn
from schemas.pipeline.document.expression_section import read_condition
from schemas.pipeline.document.word_section import read_word
from schemas.pipeline.document.yaml_document import Section
from schemas.pipeline.outputs.join import JoinOutput, JoinSide, Unmatched, Within

#: Stand-ins for wrong values of a side.
_NO_WHERE = "true"
_NO_SELECT: Mapping[str, str] = {StandIn("unnamed"): StandIn("unnamed")}


def read_join(section: Section) -> JoinOutput | None:
    """Read an output's section; None if it is too wrong to be checked further."""
    section.allow("table", "on", "within", "left", "right", "unmatched")
    section.require("table", "on", "within", "left", "right")
    table = section.text("table")
    on = section.texts("on")
    within = _read_within(section)
    left = _read_side(section, "left")
    right = _read_side(section, "right")
    unmatched = read_word(section, "unmatched", Unmatched.NONE)
    no_side = JoinSide(where=_NO_WHERE, select=_NO_SELECT)
    return section.report.complete(
        section.at,
        JoinOutput,
        {
            "table": f"unnamed_{section.at[1]}",
            "on": (StandIn("unnamed"),),
            "within": timedelta(hours=1),
            "left": no_side,
            "right": no_side,
        },
        table=table,
        on=on,
        within=within,
        left=left,
        right=right,
        unmatched=unmatched,
    )


def _read_within(section: Section) -> timedelta | Within | None:
    if not section.is_mapping("within"):
        return section.duration("within", None)
    bounds = section.section("within")
    assert bounds is not None, "a mapping is a section"
    bounds.allow("before", "after")
    nothing = timedelta()
    before = bounds.duration("before", nothing)
    after = bounds.duration("after", nothing)
    return bounds.report.attempt(bounds.at, Within, before=before, after=after)


def _read_side(section: Section, key: str) -> JoinSide | None:
    side = section.section(key)
    if side is None:
        return None
    side.allow("where", "select")
    side.require("where", "select")
    where = read_condition(side, "where")
    select = side.text_pairs("select")
    return side.report.complete(
        side.at,
        JoinSide,
        {"where": _NO_WHERE, "select": _NO_SELECT},
        where=where,
        select=select,
    )
