"""The keys that say where an output's rows go."""

from __future__ import annotations

from spark_jobs.pipeline.databases import HOME
from spark_jobs.pipeline.yaml_document import Section

PLACE = ("database", "shard_by")


def read_place(section: Section) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read where an output's rows go: the databases, and by what they are chosen."""
    databases = section.one_or_more("database")
    shard_by = section.texts("shard_by")
    section.report.alias((*section.at, "databases"), (*section.at, "database"))
    return (HOME,) if databases is None else databases, shard_by or ()
