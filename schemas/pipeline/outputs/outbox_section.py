"""The keys of an outbox output in a pipeline file."""

from __future__ import annotations

from schemas.pipeline.checks.problems import StandIn
from schemas.pipeline.document.expression_section import read_condition
from schemas.pipeline.document.yaml_document import Section
from schemas.pipeline.outputs.outbox import OutboxOutput


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
