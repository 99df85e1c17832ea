"""The keys of a pipeline file's source."""

from __future__ import annotations

from datetime import timedelta

from schemas.pipeline.checks.problems import StandIn
from schemas.pipeline.document.yaml_document import Section
from schemas.pipeline.events.source import FUTURE_BOUND, IDLE_TIMEOUT, HeaderId, Source

_HEADER_PREFIX = "header:"


#: Stand-ins for wrong values, so that the rest can be checked.
_STAND_INS = {
    "topic": "unnamed",
    "schema": StandIn("unnamed"),
    "event_id": HeaderId(header="unnamed"),
    "event_time": StandIn("unnamed"),
    "watermark_delay": timedelta(),
    "idle_timeout": IDLE_TIMEOUT,
    "future_bound": FUTURE_BOUND,
    "past_bound": None,
}


def read_source(section: Section) -> Source:
    """Read the source; report wrong values, and use stand-ins for them."""
    required = ("topic", "schema", "event_id", "event_time", "watermark_delay")
    section.allow(*required, "idle_timeout", "future_bound", "past_bound")
    section.require(*required)
    topic = section.one_or_more("topic")
    schema = section.one_or_more("schema")
    event_id = section.text("event_id")
    identity: str | HeaderId | None = event_id
    if event_id is not None and event_id.startswith(_HEADER_PREFIX):
        identity = HeaderId(header=event_id.removeprefix(_HEADER_PREFIX).strip())
    source = section.report.complete(
        section.at,
        Source,
        _STAND_INS,
        topic=_one_or_all(topic),
        schema=_one_or_all(schema),
        event_id=identity,
        event_time=section.text("event_time"),
        watermark_delay=section.duration("watermark_delay", None),
        idle_timeout=section.duration("idle_timeout", IDLE_TIMEOUT),
        future_bound=section.duration("future_bound", FUTURE_BOUND),
        past_bound=section.duration("past_bound", None),
    )
    return source or no_source()


def no_source() -> Source:
    """Return a stand-in for an unknown source."""
    return Source(**_STAND_INS)  # type: ignore[arg-type]  # each has its own type


def _one_or_all(values: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    return values[0] if values is not None and len(values) == 1 else values
