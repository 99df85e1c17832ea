"""Reads the keys for the kind of an output's windows."""

from __future__ import annotations

from schemas.pipeline.document.yaml_document import Section
from schemas.pipeline.outputs.window_kinds import (
    UTC,
    Fixed,
    Session,
    Sliding,
    WindowKind,
)

#: Keys of an output; it has exactly one of them.
KINDS = ("fixed", "sliding", "session")


def read_kind(section: Section) -> WindowKind | None:
    """Read the kind of windows; None, with problems reported, if it is wrong."""
    given = [kind for kind in KINDS if kind in section]
    if not given:
        section.reject(
            "fixed",
            "None of the keys fixed, sliding and session is there.",
            "They say which windows there are.",
            "Add one, such as fixed: 1 hour.",
            code="PIPELINE_MISSING_KEY",
        )
        return None
    for kind in given[1:]:
        section.reject(
            kind,
            f"There are both {given[0]} and {kind}.",
            "An output has windows of one kind.",
            "Remove one, or make two outputs.",
        )
    match given[0]:
        case "fixed":
            return _read_fixed(section)
        case "sliding":
            return _read_sliding(section)
        case _:
            return _read_session(section)


def _read_fixed(section: Section) -> Fixed | None:
    size = section.duration("fixed", None)
    zone = _read_time_zone(section)
    section.report.alias((*section.at, "size"), (*section.at, "fixed"))
    if size is None:
        return None
    return section.report.attempt(section.at, Fixed, size=size, time_zone=zone)


def _read_sliding(section: Section) -> Sliding | None:
    sliding = section.section("sliding")
    zone = _read_time_zone(section)
    if sliding is None:
        return None
    sliding.allow("size", "every")
    sliding.require("size", "every")
    size, every = sliding.duration("size", None), sliding.duration("every", None)
    for key in ("size", "every"):
        section.report.alias((*section.at, key), (*sliding.at, key))
    if size is None or every is None:
        return None
    return section.report.attempt(
        section.at, Sliding, size=size, every=every, time_zone=zone
    )


def _read_session(section: Section) -> Session | None:
    session = section.section("session")
    if "time_zone" in section:
        section.reject(
            "time_zone",
            "There are both session and time_zone.",
            "Events begin and end sessions, no clock does.",
            "Remove time_zone.",
        )
    if session is None:
        return None
    session.allow("gap")
    session.require("gap")
    gap = session.duration("gap", None)
    if gap is None:
        return None
    return section.report.attempt(session.at, Session, gap=gap)


def _read_time_zone(section: Section) -> str:
    return section.text("time_zone") or UTC
