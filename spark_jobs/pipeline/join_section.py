"""The keys of a join output in a pipeline file."""

from __future__ import annotations

from datetime import timedelta

from spark_jobs.pipeline.expression_section import read_condition
from spark_jobs.pipeline.join import JoinOutput, JoinSide, Unmatched, Within
from spark_jobs.pipeline.word_section import read_word
from spark_jobs.pipeline.yaml_document import Section


def read_join(section: Section) -> JoinOutput | None:
    """Read an output's section; None, with the problems reported, if it is wrong."""
    section.allow("table", "on", "within", "left", "right", "unmatched")
    section.require("table", "on", "within", "left", "right")
    table = section.text("table")
    on = section.texts("on")
    within = _read_within(section)
    left = _read_side(section, "left")
    right = _read_side(section, "right")
    unmatched = read_word(section, "unmatched", Unmatched.NONE)
    if on is None or left is None or right is None:
        return None
    return section.report.complete(
        section.at,
        JoinOutput,
        {"table": f"unnamed_{section.at[1]}", "within": timedelta(hours=1)},
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
    if where is None or select is None:
        return None
    return side.report.attempt(side.at, JoinSide, where=where, select=select)
