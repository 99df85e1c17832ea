"""The parts of a pipeline file that producers and audits need, in YAML or in Python.

The jobs that run a pipeline check it as a whole. A producer reads only topics,
contracts and event ID, and does not judge the other keys.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from tallyweir.schemas.contract import REGISTRY, DeclaredFields
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.formats.framing import Framing
from tallyweir.schemas.formats.known_formats import with_framing
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    TallyweirError,
    describe_error,
)

PIPELINE_BYTES_MAX = 1_000_000
HEADER_PREFIX = "header:"
POSITION = "position"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSection:
    """Where a pipeline's events come from.

    Attributes:
        topics: The Kafka topics, at least one.
        schemas: References to the contracts, as ``load_contract`` takes them; at least
            one.
        event_id: A field's name, ``header:NAME``, ``position``, ``key`` or
            ``key.FIELD``; several in brackets.
        has_key: Whether the file says how keys are written.
        subject: The schema registry's subject; None if the file names none.
        pipeline: The pipeline's name; None if the file has none.
    """

    topics: tuple[str, ...]
    schemas: tuple[str, ...]
    event_id: str
    has_key: bool = False
    subject: str | None = None
    pipeline: str | None = None

    @property
    def id_field(self) -> str | None:
        """The payload's field that holds the ID; None if something else does."""
        is_of_key = self.has_key and re.fullmatch(r"key([._].*)?", self.event_id)
        is_field = re.fullmatch(r"\w+", self.event_id) and not self.id_is_position
        return self.event_id if is_field and not is_of_key else None

    @property
    def id_is_position(self) -> bool:
        """Whether the position in Kafka is the ID."""
        return self.event_id == POSITION

    @property
    def id_header(self) -> str | None:
        """The name of the header that carries the ID; None if no header does."""
        if not self.event_id.startswith(HEADER_PREFIX):
            return None
        return self.event_id.removeprefix(HEADER_PREFIX)

    def choose_topic(self, wanted: str | None) -> str:
        """Return the wanted topic; None stands for the only one.

        Raises:
            ConfigurationError: ``TOPIC_NOT_CHOSEN``: the pipeline has several topics
                and none is chosen, or the chosen one is not the pipeline's.
        """
        return _choose("TOPIC_NOT_CHOSEN", "topic", self.topics, wanted)

    def choose_schema(self, wanted: str | None) -> str:
        """Return the wanted contract; None stands for the only one.

        Raises:
            ConfigurationError: ``SCHEMA_NOT_CHOSEN``, in the same cases.
        """
        return _choose("SCHEMA_NOT_CHOSEN", "schema", self.schemas, wanted)


def _choose(code: str, key: str, known: tuple[str, ...], wanted: str | None) -> str:
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted not in known:
        raise ConfigurationError(
            code,
            saw=f"The pipeline reads {', '.join(known)}; "
            f"{wanted or 'none of them'} was chosen.",
            why=f"Each event has one {key} of those that the pipeline reads.",
            fix=f"Choose one: --{key} {known[0]}.",
        )
    return wanted


def read_source_section(path: Path) -> SourceSection:
    """Read the source section of a pipeline file.

    Raises:
        ConfigurationError: The file does not exist or is not YAML, or one of the three
            keys is missing or not a text.
    """
    keys = _read_keys(path)
    pipeline = keys if isinstance(keys, Mapping) else {}
    source, name = pipeline.get("source"), pipeline.get("pipeline")
    if not isinstance(source, dict):
        raise _malformed(path, "has no section named source")
    return SourceSection(
        topics=_texts(path, source, "topic"),
        schemas=_schemas(path, source),
        event_id=_event_id(path, source),
        has_key=source.get("key") is not None,
        subject=_text_or_none(path, source, "subject"),
        pipeline=name if isinstance(name, str) else None,
    )


def _event_id(path: Path, source: dict[str, object]) -> str:
    given = source.get("event_id")
    if not isinstance(given, list) or len(given) < 2:  # noqa: PLR2004 - several
        return _text(path, source, "event_id", given)
    parts = [_text(path, source, "event_id", one) for one in given]
    return f"[{', '.join(parts)}]"


def _schemas(path: Path, source: dict[str, object]) -> tuple[str, ...]:
    fields = source.get("fields")
    if fields is None:
        framing = source.get("framing", Framing.CONFLUENT)
        framing = _text(path, source, "framing", framing)
        names = _texts(path, source, "schema")
        if source.get("format") == "json":
            unknown = _unknown(path, source)
            return tuple(
                DeclaredFields(fields={}, unknown=unknown, schema=name).reference
                for name in names
            )
        if source.get("format") == "protobuf" and names == (REGISTRY,):
            return (f"{REGISTRY}#",)
        envelope = _text_or_none(path, source, "envelope")
        return tuple(with_framing(name, framing, envelope) for name in names)
    if not isinstance(fields, dict):
        raise _malformed(path, f"source.fields is {fields!r:.60}, expected a mapping")
    for name in fields:
        if not isinstance(name, str):
            raise _malformed(path, f"reads the field {name!r} as no text; quote it")
    named = {name: _text(path, fields, name, fields[name]) for name in fields}
    declared = DeclaredFields(
        fields=named,
        unknown=_unknown(path, source),
        envelope=_text_or_none(path, source, "envelope") or "",
        framed=source.get("schema") == REGISTRY,
    )
    return (declared.reference,)


def _unknown(path: Path, source: dict[str, object]) -> str:
    return _text(path, source, "unknown", source.get("unknown", "ignore"))


def _texts(path: Path, source: dict[str, object], key: str) -> tuple[str, ...]:
    given = source.get(key)
    values = given if isinstance(given, list) and given else [given]
    return tuple(_text(path, source, key, value) for value in values)


def _text_or_none(path: Path, source: dict[str, object], key: str) -> str | None:
    given = source.get(key)
    return None if given is None else _text(path, source, key, given)


def _text(path: Path, source: dict[str, object], key: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    found = "is missing" if key not in source else f"is {value!r:.60}"
    raise _malformed(path, f"source.{key} {found}, expected text")


def read_outbox_topics(path: Path) -> list[str]:
    """List the topics of a pipeline's outboxes; complete only if the file is valid.

    Raises:
        ConfigurationError: The file does not exist, or is not YAML.
    """
    pipeline = _read_keys(path)
    outputs = pipeline.get("outputs") if isinstance(pipeline, dict) else None
    outboxes = [
        output.get("outbox")
        for output in (outputs if isinstance(outputs, list) else [])
        if isinstance(output, dict)
    ]
    topics = [box.get("topic") for box in outboxes if isinstance(box, dict)]
    return [topic for topic in topics if isinstance(topic, str)]


def _read_keys(path: Path) -> object:
    if path.suffix == PYTHON_ENDING:
        return describe_python_pipeline(path)
    try:
        with path.open("rb") as file:
            content = file.read(PIPELINE_BYTES_MAX + 1)
    except OSError as exc:
        raise ConfigurationError(
            "PIPELINE_MISSING",
            saw=f"{path} cannot be read ({exc.strerror}).",
            why="The pipeline file names the topic, the contract and the event ID.",
            fix="Give the path of a pipeline file.",
        ) from exc
    if len(content) > PIPELINE_BYTES_MAX:
        raise _malformed(path, f"is larger than {PIPELINE_BYTES_MAX:,} bytes")
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        # PyYAML's messages span lines; the first lines say what is wrong and where.
        shown = " ".join(str(exc).split())[:200]
        raise _malformed(path, f"is not YAML: {shown}") from exc


def _malformed(path: Path, saw: str) -> ConfigurationError:
    return ConfigurationError(
        "PIPELINE_MALFORMED",
        saw=f"{path}: {saw}.",
        why="A producer needs source.topic, source.schema (or source.fields) and "
        "source.event_id.",
        fix="Correct the pipeline file.",
    )


PYTHON_ENDING = ".py"


def describe_python_pipeline(path: Path) -> Mapping[str, Any]:
    """Return the keys of a Python pipeline file that producers and audits read.

    It runs the file, once in this process for each change of it. What the file prints
    is dropped.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE``, with the file's own error.
    """
    changed_ns = path.stat().st_mtime_ns if path.exists() else 0
    return _describe(path.absolute(), changed_ns)


@lru_cache
def _describe(path: Path, _changed_ns: int) -> Mapping[str, Any]:
    from tallyweir.schemas.pipeline import HeaderId, PositionId, load_pipeline  # noqa: PLC0415 - takes time

    try:
        with redirect_stdout(io.StringIO()):
            pipeline = load_pipeline(path)
    except (TallyweirError, ContractError) as error:
        told = " ".join(" ".join(describe_error(error)).split())
        raise ConfigurationError(
            "PIPELINE_FILE_UNREADABLE",
            saw=f"{path}: {told}.",
            why="Only running its file shows the name and the source of a Python "
            "pipeline.",
            fix="Correct the file, or give the pipeline's name where the command "
            "accepts one.",
        ) from error
    source = pipeline.source
    event_id: str | list[str]
    match source.event_id:
        case HeaderId(header=header):
            event_id = f"{HEADER_PREFIX}{header}"
        case PositionId():
            event_id = POSITION
        case str() as field:
            event_id = field
        case _:
            event_id = list(source.id_columns)
    return {
        "pipeline": pipeline.name,
        "source": {
            "topic": list(source.topics),
            "schema": list(source.schemas),
            "event_id": event_id,
            **({} if source.key is None else {"key": source.key.reference}),
            "subject": source.subject,
        },
        "databases": dict(pipeline.databases),
        "outputs": [
            {"table": output.table}
            if output.sends_to is None
            else {"outbox": {"topic": output.sends_to}}
            for output in pipeline.outputs
        ],
    }
