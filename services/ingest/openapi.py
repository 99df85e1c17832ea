"""The service's OpenAPI document, and a page of it that needs no other host.

Without a key the document describes only the service. With a key it also has the key's
topics, each with its events' schema. So a client without a key learns of no topic.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from tallyweir.schemas.formats.format import Format
from tallyweir.schemas.formats.known_formats import FORMATS
from tallyweir.schemas.schema_tree import (
    NUMBER_BOUNDS,
    Enumeration,
    Fixed,
    Mapping,
    Nullable,
    Primitive,
    Record,
    SchemaNode,
    Sequence,
    Union,
)
from tallyweir.services.ingest.event_forms import EVENTS_MAX
from tallyweir.services.ingest.request import (
    CLOUD_EVENT,
    CLOUD_EVENT_BATCH,
    JSON,
)
from tallyweir.services.ingest.scoped_ids import ID_BYTES_MAX
from tallyweir.services.ingest.served_topics import ServedTopic

Json = dict[str, object]

_ANSWERS = {
    "202": "All events are in Kafka, where the answer says.",
    "207": "Some events of a batch are in Kafka, the others are refused.",
    "400": "The body or a header cannot be read; nothing was taken.",
    "401": "No valid API key.",
    "403": "The key is not for this topic, or the ID is not the producer's.",
    "404": "No pipeline file of the service names the topic.",
    "405": "The method is not POST.",
    "408": "The body was not complete in time.",
    "413": "The body or the batch is too large.",
    "415": "The body has no known content type, or is compressed.",
    "422": "The event lacks its ID, or is not what its contract says.",
    "429": "Too much is in flight; send the same again later.",
    "503": "The outcome is unknown; send the same again, with the same ID.",
}
_TEXT_FORMATS = {
    "date": "date",
    "timestamp-millis": "date-time",
    "timestamp-micros": "date-time",
    "timestamp-nanos": "date-time",
    "duration": "duration",
    "uuid": "uuid",
    "bytes": "byte",
}
_NUMBERS = {"int", "long"}
_PATTERN_SIGNS = re.compile(r"[\^$.*+?()\[\]{}|\\]")


def describe_service(topics: Iterable[ServedTopic], id_prefix: str = "") -> Json:
    """Write the OpenAPI document, with the paths of a producer's topics."""
    paths: Json = {}
    for topic in topics:
        event = event_schema(topic.contract.tree)
        if topic.id_field_type == "string":
            _describe_id(event, topic.section.event_id, id_prefix)
        summary = f"Send {topic.contract.reference}"
        paths[f"/v1/events/{topic.name}"] = {
            "post": _operation(summary, event, [topic.contract.format])
        }
    if not paths:
        name = {
            "name": "topic",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"},
        }
        any_event: Json = {"type": "object"}
        paths["/v1/events/{topic}"] = {
            "post": _operation("Send events", any_event, FORMATS.values(), name)
        }
    for path, summary in (
        ("/livez", "Does the service run?"),
        ("/readyz", "Does the broker answer, and does it have all topics?"),
        ("/metrics", "Metrics for Prometheus."),
    ):
        answers: Json = {"200": {"description": "Yes."}}
        if path == "/readyz":
            answers["503"] = {"description": "No."}
        paths[path] = {
            "get": {"summary": summary, "security": [], "responses": answers}
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tallyweir ingest",
            "version": "1",
            "description": "Events into Kafka, acknowledged by the broker.",
        },
        "paths": paths,
        "security": [{"key": []}],
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM, "Outcomes": _OUTCOMES},
        },
    }


def _describe_id(event: Json, field: str, prefix: str) -> None:
    """Describe what ``scoped_ids`` requires of the field that holds the ID."""
    properties = event["properties"]
    assert isinstance(properties, dict), "a contract is a record"
    # Escape only characters that every dialect of patterns can escape: some dialects
    # know no other escapes.
    signs = _PATTERN_SIGNS.sub(r"\\\g<0>", prefix)
    properties[field] = {
        "type": "string",
        "pattern": f"^{signs}[!-~]{{1,{ID_BYTES_MAX - len(prefix)}}}$",
    }


def _operation(
    summary: str, event: Json, formats: Iterable[Format], *parameters: Json
) -> Json:
    batch: Json = {
        "type": "array",
        "items": event,
        "minItems": 1,
        "maxItems": EVENTS_MAX,
    }
    envelope = _envelope(event)
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The ID of the request's one event.",
        "schema": {"type": "string", "minLength": 1, "maxLength": ID_BYTES_MAX},
    }
    return {
        "summary": summary,
        "parameters": [*parameters, key],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": {"oneOf": [event, batch]}},
                **{
                    one.media_type: {"schema": {"type": "string", "format": "binary"}}
                    for one in formats
                },
                CLOUD_EVENT: {"schema": envelope},
                CLOUD_EVENT_BATCH: {"schema": {**batch, "items": envelope}},
            },
        },
        "responses": {
            status: {
                "description": description,
                "content": _content(int(status)),
            }
            for status, description in _ANSWERS.items()
        },
    }


def _content(status: int) -> Json:
    if status < 300:  # noqa: PLR2004 - what HTTP calls success
        return {JSON: {"schema": {"$ref": "#/components/schemas/Outcomes"}}}
    return {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
    }


def event_schema(node: SchemaNode) -> Json:
    """Write a contract's type as JSON Schema, as ``json_records`` reads it."""
    match node:
        case Record():
            return {
                "type": "object",
                "properties": {
                    field.name: event_schema(field.node) for field in node.fields
                },
                "required": [
                    field.name for field in node.fields if not field.has_default
                ],
                "additionalProperties": False,
            }
        case Nullable():
            return {"anyOf": [{"type": "null"}, event_schema(node.item)]}
        case Union():
            pairs = zip(node.names, node.branches, strict=True)
            return {"anyOf": [_branch_schema(name, one) for name, one in pairs]}
        case Sequence():
            return {"type": "array", "items": event_schema(node.item)}
        case Mapping():
            return {
                "type": "object",
                "additionalProperties": event_schema(node.item),
            }
        case _:
            return _scalar_schema(node)


def _branch_schema(name: str, branch: SchemaNode | None) -> Json:
    if branch is None:
        return {"type": "null"}
    return {
        "type": "object",
        "properties": {name: event_schema(branch)},
        "required": [name],
        "additionalProperties": False,
    }


def _scalar_schema(node: Primitive | Fixed | Enumeration) -> Json:
    if isinstance(node, Enumeration):
        return {"type": "string", "enum": list(node.symbols)}
    if isinstance(node, Fixed) and node.logical is None:
        return {"type": "string"}
    kind = node.logical or ("bytes" if isinstance(node, Fixed) else node.kind)
    if kind in _NUMBERS:
        lowest, highest = NUMBER_BOUNDS[kind]
        return {"type": "integer", "minimum": lowest, "maximum": highest}
    if kind in {"float", "double"}:
        return {"type": "number"}
    if kind == "boolean":
        return {"type": "boolean"}
    schema: Json = {"type": "string"}
    if kind in _TEXT_FORMATS:
        schema["format"] = _TEXT_FORMATS[kind]
    return schema


def _envelope(event: Json) -> Json:
    text: Json = {"type": "string", "pattern": "^[ -~]{1,100}$"}
    return {
        "type": "object",
        "properties": {
            "specversion": {"const": "1.0"},
            "id": text,
            "source": text,
            "type": text,
            "time": {"type": "string", "format": "date-time"},
            "data": event,
        },
        "required": ["specversion", "id", "source", "type", "data"],
        # All other members are extensions, which are short texts.
        "propertyNames": {"pattern": "^[a-z0-9]{1,40}$"},
        "additionalProperties": text,
    }


_PROBLEM: Json = {
    "type": "object",
    "properties": {
        name: {"type": "integer" if name == "status" else "string"}
        for name in ("type", "title", "status", "detail", "code", "saw", "why", "fix")
    },
    "required": ["type", "title", "status", "code", "saw", "why", "fix"],
}
_OUTCOMES: Json = {
    "type": "object",
    "properties": {
        "events": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "status": {"type": "integer"},
                    "id": {"type": "string"},
                    "topic": {"type": "string"},
                    "partition": {"type": "integer"},
                    "offset": {"type": "integer"},
                    "code": {"type": "string"},
                },
                "required": ["status"],
            },
        }
    },
    "required": ["events"],
}


def render_page(document: Json) -> str:
    """Write the document as a plain page: no script, no other host."""
    rows = "".join(
        f"<tr><td>{status}</td><td>{html.escape(text)}</td></tr>"
        for status, text in _ANSWERS.items()
    )
    paths = document["paths"]
    assert isinstance(paths, dict)
    listed = "".join(
        f"<li><code>{method.upper()} {html.escape(path)}</code>: "
        f"{html.escape(operation['summary'])}</li>"
        for path, operations in paths.items()
        for method, operation in operations.items()
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<title>Tallyweir ingest</title>"
        "<style>body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;"
        "padding:0 1em}td{padding:.1em 1em .1em 0;vertical-align:top}</style>"
        "<h1>Tallyweir ingest</h1>"
        "<p>Events into Kafka, acknowledged by the broker. The machine's form of "
        "this page is <code>/openapi.json</code>; asked with an API key, it also has "
        "the key's topics with their events' schemas.</p>"
        f"<ul>{listed}</ul><h2>Answers to events</h2><table>{rows}</table></html>"
    )
