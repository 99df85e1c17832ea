"""The keys of an enrichment in a pipeline file."""

from __future__ import annotations

from spark_jobs.pipeline.enrichment import REFRESH, Enrichment
from spark_jobs.pipeline.yaml_document import Section


def read_enrichment(section: Section) -> Enrichment | None:
    """Read an enrichment; None, with the problems reported, if it is wrong."""
    section.allow("table", "on", "select", "default", "refresh")
    section.require("table", "on", "select")
    table = section.text("table")
    on = _read_pairs(section.section("on"))
    select = _read_pairs(section.section("select"))
    defaults = section.section("default")
    refresh = section.duration("refresh", REFRESH)
    if table is None or on is None or select is None:
        return None
    default = {} if defaults is None else defaults.scalars()
    return section.report.attempt(
        section.at,
        Enrichment,
        table=table,
        on=on,
        select=select,
        default=default,
        refresh=refresh,
    )


def _read_pairs(section: Section | None) -> dict[str, str] | None:
    if section is None:
        return None
    pairs = {key: section.text(key) for key in section}
    return {key: value for key, value in pairs.items() if value is not None}
