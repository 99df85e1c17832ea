"""The keys of a pipeline file's source."""

from __future__ import annotations

from spark_jobs.pipeline.source import FUTURE_BOUND, IDLE_TIMEOUT, HeaderId, Source
from spark_jobs.pipeline.yaml_document import Section

_HEADER_PREFIX = "header:"


def read_source(section: Section) -> Source | None:
    """Read the source; None, with the problems reported, if it is wrong."""
    required = ("topic", "schema", "event_id", "event_time", "watermark_delay")
    section.allow(*required, "idle_timeout", "future_bound", "past_bound")
    section.require(*required)
    topic = section.one_or_more("topic")
    schema = section.one_or_more("schema")
    event_id = section.text("event_id")
    event_time = section.text("event_time")
    watermark_delay = section.duration("watermark_delay", None)
    idle_timeout = section.duration("idle_timeout", IDLE_TIMEOUT)
    future_bound = section.duration("future_bound", FUTURE_BOUND)
    past_bound = section.duration("past_bound", None)
    if (
        topic is None
        or schema is None
        or event_id is None
        or event_time is None
        or watermark_delay is None
    ):
        return None
    identity: str | HeaderId = event_id
    if event_id.startswith(_HEADER_PREFIX):
        identity = HeaderId(header=event_id.removeprefix(_HEADER_PREFIX).strip())
    return section.report.attempt(
        section.at,
        Source,
        topic=topic[0] if len(topic) == 1 else topic,
        schema=schema[0] if len(schema) == 1 else schema,
        event_id=identity,
        event_time=event_time,
        watermark_delay=watermark_delay,
        idle_timeout=idle_timeout,
        future_bound=future_bound,
        past_bound=past_bound,
    )
