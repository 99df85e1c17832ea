"""The keys of an append output in a pipeline file."""

from __future__ import annotations

from schemas.pipeline.document.expression_section import read_condition
from schemas.pipeline.document.yaml_document import Section
from schemas.pipeline.outputs.append import AppendOutput
from schemas.pipeline.outputs.place_section import PLACE, read_place, stand_ins


def read_append(section: Section) -> AppendOutput | None:
    """Read an output's section; None if it is too wrong to be checked further."""
    section.allow("table", "columns", *PLACE, "branches", "where")
    section.require("table")
    table = section.text("table")
    columns = section.texts("columns")
    databases, shard_by = read_place(section)
    branches = section.whole_number("branches", default=1)
    where = read_condition(section, "where")
    return section.report.complete(
        section.at,
        AppendOutput,
        stand_ins(section) | {"branches": 1},
        table=table,
        columns=columns,
        databases=databases,
        shard_by=shard_by,
        branches=branches,
        where=where,
    )
