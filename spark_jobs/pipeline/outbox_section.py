"""The keys of an outbox output in a pipeline file."""

from __future__ import annotations

from spark_jobs.pipeline.expression_section import read_condition
from spark_jobs.pipeline.outbox import OutboxOutput
from spark_jobs.pipeline.problems import StandIn
from spark_jobs.pipeline.yaml_document import Section


def read_outbox(section: Section) -> OutboxOutput | None:
    """Read an output's section; None if it is too wrong to be checked further."""
    section.allow("topic", "key", "select", "where")
    section.require("topic", "key")
    topic = section.text("topic")
    key = section.text("key")
    select = section.texts("select")
    where = read_condition(section, "where")
    return section.report.complete(
        section.at,
        OutboxOutput,
        {
            # No other output has this topic.
            "topic": f"unnamed_{section.at[1]}",
            "key": StandIn("unnamed"),
            "select": None,
            "where": None,
        },
        topic=topic,
        key=key,
        select=select,
        where=where,
    )
