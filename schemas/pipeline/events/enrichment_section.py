"""The keys of an enrichment in a pipeline file."""

from __future__ import annotations

from schemas.pipeline.checks.databases import HOME
from schemas.pipeline.document.yaml_document import Section
from schemas.pipeline.events.enrichment import REFRESH, AsOf, Enrichment

_PLACE = ("table", "database", "topic", "schema")


def read_enrichment(section: Section) -> Enrichment | None:
    """Read an enrichment; None if the columns that it adds are unknown."""
    section.allow(*_PLACE, "on", "select", "default", "as_of", "refresh")
    section.require("on", "select")
    place: dict[str, str | None] = {key: section.text(key) for key in _PLACE}
    on = section.text_pairs("on")
    select = section.text_pairs("select")
    defaults = section.section("default")
    refresh = section.duration("refresh", REFRESH)
    as_of = _read_as_of(section.section("as_of"))
    if on is None or select is None:
        return None
    default = {} if defaults is None else defaults.scalars()
    if any(key in section and place[key] is None for key in _PLACE):
        place = dict.fromkeys(_PLACE) | {"table": "unnamed"}
    named = {key: "unnamed" for key in ("table", "topic") if place[key] is not None}
    return section.report.complete(
        section.at,
        Enrichment,
        {**named, "database": HOME, "default": {}, "refresh": REFRESH},
        table=place["table"],
        database=place["database"] or HOME,
        topic=place["topic"],
        schema=place["schema"],
        on=on,
        select=select,
        default=default,
        as_of=as_of,
        refresh=refresh,
    )


def _read_as_of(section: Section | None) -> AsOf | None:
    if section is None:
        return None
    section.allow("from", "until")
    section.require("from", "until")
    valid_from = section.text("from")
    valid_until = section.text("until")
    if valid_from is None or valid_until is None:
        return None
    return section.report.attempt(
        section.at, AsOf, valid_from=valid_from, valid_until=valid_until
    )
