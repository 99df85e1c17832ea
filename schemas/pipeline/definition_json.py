"""A pipeline as JSON for the ledger, comparable and readable years later.

Everything with an order is a list, because Postgres' ``jsonb`` does not keep the order
of keys. Durations are text, as in pipeline files. An attribute with its default value
is left out, so that a new attribute changes no hash of a pipeline without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from enum import StrEnum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tallyweir.schemas.contract import REGISTRY, DeclaredFields
from tallyweir.schemas.formats.framing import Framing
from tallyweir.schemas.formats.known_formats import split_envelope, split_framing
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.events.monitoring import Reported
from tallyweir.schemas.pipeline.events.source import (
    JSON,
    ONLY_MESSAGE,
    PROTOBUF,
    EventId,
    HeaderId,
    PositionId,
    is_message,
)
from tallyweir.schemas.pipeline.outputs.outbox import Outbox
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.schemas.pipeline.outputs.stateful import (
    ListState,
    MapState,
    ValueState,
)
from tallyweir.schemas.pipeline.outputs.window import Fixed, Session, Sliding, Window
from tallyweir.sinks.protocol.durations import format_duration, parse_duration

FORMAT = 1

T = TypeVar("T")

#: Attributes that were there from the beginning, so that definitions have them always.
_ALWAYS: Mapping[str, frozenset[str]] = {
    "Aggregate": frozenset({"argument"}),
    "Append": frozenset({"columns"}),
    "DeadLetterLimit": frozenset({"records"}),
    "Deduplicate": frozenset({"horizon", "conflicts"}),
    "Enrichment": frozenset({"default", "refresh"}),
    "Join": frozenset({"unmatched"}),
    "Outbox": frozenset({"select"}),
    "Pipeline": frozenset({"deduplicate", "validate", "enrich"}),
    "Prediction": frozenset({"version"}),
    "Source": frozenset({"idle_timeout", "future_bound"}),
    "Stateful": frozenset({"state", "select", "ttl", "version"}),
    "Window": frozenset({"by", "allowed_lateness", "late"}),
    "Within": frozenset({"before", "after"}),
}
#: Attributes that the JSON calls as pipeline files do.
_RENAMED = {"valid_from": "from", "valid_until": "until"}
_ATTRIBUTES = {key: attribute for attribute, key in _RENAMED.items()}


def pipeline_definition_json(pipeline: Pipeline) -> dict[str, Any]:
    """Describe a pipeline so that ``from_json`` returns an equal one."""
    source, event_id = pipeline.source, pipeline.source.event_id
    written = _attributes_json(pipeline)
    # The version of the code stands for functions.
    for key in ("transform", "code_version"):
        written.pop(key, None)
    if pipeline.has_code:
        written["code_version"] = pipeline.code_version
    # A reference to a contract tells its format and Avro's framing, and holds fields
    # that are named.
    for key in ("format", "fields", "framing", "unknown", "envelope"):
        written["source"].pop(key, None)
    written["source"] |= {
        "topic": _one_or_all(source.topics),
        "schema": _one_or_all(source.schemas),
        "event_id": _identity_json(event_id),
    }
    return {"format": FORMAT, **written}


def definition_hash(pipeline: Pipeline) -> str:
    """Return 64 hex digits, equal for equal pipelines in every process and release."""
    definition = pipeline_definition_json(pipeline)
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def from_json(definition: Mapping[str, Any]) -> Pipeline:
    """Build the pipeline that ``pipeline_definition_json`` described.

    Raises:
        PipelineError: This release refuses what an older one accepted.
        ValueError: Another format, not made by ``pipeline_definition_json``, or a
            pipeline with functions, for which the ledger has only the version.
    """
    if definition.get("format") != FORMAT:
        raise ValueError(
            f"a pipeline in format {definition.get('format')!r}, expected {FORMAT}"
        )
    if "code_version" in definition:
        raise ValueError("a pipeline with functions, which a ledger does not hold")
    source = definition["source"]
    identity = _identity(source["event_id"])
    parts = {key: value for key, value in definition.items() if key != "format"}
    parts["source"] = {**source, "event_id": identity, **_declared(source["schema"])}
    parts["outputs"] = tuple(_output_from_json(one) for one in definition["outputs"])
    return _build(Pipeline, parts)


def _identity_json(event_id: EventId) -> dict[str, Any]:
    match event_id:
        case HeaderId(header=header):
            return {"header": header}
        case PositionId():
            return {"position": True}
        case str():
            return {"field": event_id}
        case parts:
            return {"parts": [_identity_json(one) for one in parts]}


def _identity(written: Mapping[str, Any]) -> EventId:
    if "parts" in written:
        parts = map(_identity, written["parts"])
        return tuple(one for one in parts if isinstance(one, str | HeaderId))
    if "header" in written:
        return HeaderId(header=written["header"])
    return PositionId() if "position" in written else str(written["field"])


def _declared(schema: str | list[str]) -> dict[str, Any]:
    """Return the attributes of a source that its reference to a contract tells."""
    if is_message(schema):
        is_only = schema == ONLY_MESSAGE
        return {"format": PROTOBUF, **({"schema": REGISTRY} if is_only else {})}
    declared = DeclaredFields.of(schema) if isinstance(schema, str) else None
    if declared is None:
        return _framed(schema)
    return {
        "schema": declared.schema or (REGISTRY if declared.framed else None),
        "format": JSON,
        "fields": list(declared.fields.items()),
        "unknown": declared.unknown,
        "envelope": declared.envelope or None,
    }


def _framed(schema: str | list[str]) -> dict[str, Any]:
    """Return the attributes of a source in an envelope or in another framing."""
    names = [schema] if isinstance(schema, str) else schema
    parts = [split_envelope(one) for one in names]
    (envelope, framed), *_ = parts
    framing, name = split_framing(framed)
    if envelope is None and framing is Framing.CONFLUENT:
        return {}
    named = [split_framing(one)[1] for _, one in parts]
    return {
        "schema": name if isinstance(schema, str) else named,
        "framing": framing.value,
        "envelope": envelope,
    }


def _one_or_all(names: tuple[str, ...]) -> str | list[str]:
    first, *others = names
    return [first, *others] if others else first


def _attributes_json(part: Any) -> dict[str, Any]:  # noqa: ANN401 - any part
    """Describe the attributes that tell a part from another."""
    always = _ALWAYS.get(type(part).__name__, frozenset())
    written = {}
    for field in fields(part):
        value, default = getattr(part, field.name), field.default
        # A Python file may write a list where a tuple is meant.
        value = tuple(value) if isinstance(value, list) else value
        if field.default_factory is not MISSING:
            default = field.default_factory()
        if field.compare and (value != default or field.name in always):
            written[_RENAMED.get(field.name, field.name)] = _to_json(value)
    return written


def _to_json(value: Any) -> Any:  # noqa: ANN401, PLR0911 - any attribute
    match value:
        case timedelta():
            return format_duration(value)
        case StrEnum():
            return value.value
        case tuple() | list():
            return [_to_json(one) for one in value]
        case Mapping():
            return [[name, _to_json(one)] for name, one in value.items()]
        case Reported():
            # Figures have no order.
            kinds = ("counters", "distributions")
            return {kind: dict(getattr(value, kind)) for kind in kinds}
        case ValueState() | ListState() | MapState():
            return type(value).__name__
        case Output():
            return _output_to_json(value)
    return _attributes_json(value) if is_dataclass(value) else value


def _output_to_json(output: Output) -> dict[str, Any]:
    # An outbox has a name in the ledger too, for readers that tell outputs apart by it.
    written = {"kind": output.kind, "table": output.table, **_attributes_json(output)}
    windows: dict[str, Any] = written.pop("windows", {})
    return written | windows


def _output_from_json(definition: Mapping[str, Any]) -> Output:
    parts = dict(definition)
    kind = Output.kinds[parts.pop("kind")]
    if kind is Outbox:
        del parts["table"]
    if kind is Window:
        windows = {"gap": Session, "every": Sliding, "size": Fixed}
        chosen = next(one for key, one in windows.items() if key in parts)
        names = {field.name for field in fields(chosen)} & parts.keys()
        parts["windows"] = _build(chosen, {name: parts.pop(name) for name in names})
    return _build(kind, parts)


def _build(kind: type[T], definition: Mapping[str, Any]) -> T:
    """Build a part of its described attributes."""
    # Only a type checker knows Spark's class, and no definition has a transform.
    hints = get_type_hints(kind, localns={"DataFrame": object})
    values = {_ATTRIBUTES.get(key, key): value for key, value in definition.items()}
    return kind(**{name: _from_json(one, hints[name]) for name, one in values.items()})


def _from_json(value: Any, hint: Any) -> Any:  # noqa: ANN401, PLR0911 - any attribute
    """Return the value that a type makes of JSON; of a union the first that can."""
    if get_origin(hint) in {Union, UnionType}:
        wanted = (_from_json(value, one) for one in get_args(hint))
        return next((one for one in wanted if one is not value), value)
    kind = get_origin(hint) or hint
    if isinstance(value, list) and kind is tuple:
        return tuple(_from_json(one, get_args(hint)[0]) for one in value)
    if isinstance(value, list) and kind is Mapping:
        return {name: _from_json(one, get_args(hint)[1]) for name, one in value}
    if isinstance(value, str) and kind is timedelta:
        return parse_duration(value)
    if isinstance(value, str) and isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value) if value in set(kind) else value
    if isinstance(value, dict) and isinstance(kind, type) and is_dataclass(kind):
        return _build(kind, value)
    return value
