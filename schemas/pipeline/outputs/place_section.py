"""Reads the keys that say where an output's rows go."""

from __future__ import annotations

from schemas.pipeline.checks.databases import HOME
from schemas.pipeline.document.yaml_document import Section

PLACE = ("database", "shard_by")


def stand_ins(section: Section) -> dict[str, object]:
    """Return stand-ins for wrong values of an output's place and condition.

    No other output has the stand-in table.
    """
    return {
        "table": f"unnamed_{section.at[1]}",
        "databases": (HOME,),
        "shard_by": (),
        "where": None,
    }


def read_place(section: Section) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read an output's databases, and the columns that choose among them."""
    databases = section.one_or_more("database")
    shard_by = section.texts("shard_by")
    section.report.alias((*section.at, "databases"), (*section.at, "database"))
    return (HOME,) if databases is None else databases, shard_by or ()
