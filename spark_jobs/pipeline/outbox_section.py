"""The keys of an outbox output in a pipeline file."""

from __future__ import annotations

from spark_jobs.pipeline.expression_section import read_condition
from spark_jobs.pipeline.outbox import OutboxOutput
from spark_jobs.pipeline.yaml_document import Section


def read_outbox(section: Section) -> OutboxOutput | None:
    """Read an output's section; None, with the problems reported, if it is wrong."""
    section.allow("topic", "key", "select", "where")
    section.require("topic", "key")
    topic = section.text("topic")
    key = section.text("key")
    select = section.texts("select")
    where = read_condition(section, "where")
    if key is None:
        return None
    return section.report.complete(
        section.at,
        OutboxOutput,
        {"topic": "unnamed", "where": None},
        topic=topic,
        key=key,
        select=select,
        where=where,
    )
