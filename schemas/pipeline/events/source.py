"""The source of a pipeline: its topics, contracts, event IDs and event times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field, PlainValidator

from tallyweir.schemas.contract import REGISTRY, DeclaredFields, is_of_registry
from tallyweir.schemas.formats.debezium_envelope import ENVELOPES
from tallyweir.schemas.formats.framing import Framing
from tallyweir.schemas.formats.known_formats import with_framing
from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.names import (
    check_column,
    check_distinct,
    check_topic,
)
from tallyweir.schemas.pipeline.checks.problems import (
    Path,
    Problem,
    StandIn,
    empty_value,
    raise_if_any,
)
from tallyweir.schemas.pipeline.document.file_keys import (
    TEXTS,
    Duration,
    Given,
    Info,
    Keys,
    OneOrAll,
    Pairs,
    Text,
    read_text,
)
from tallyweir.schemas.pipeline.document.yaml_tree import YamlList
from tallyweir.schemas.pipeline.events.source_key import SourceKey, SourceKeyKeys
from tallyweir.sinks.protocol.column_names import HEADER_PREFIX

IDLE_TIMEOUT = timedelta(minutes=1)
FUTURE_BOUND = timedelta(days=1)
#: Before the name of a field of the key, which its column has after ``key_``.
_KEY_PREFIX = "key."
_POSITION = "position"
#: In place of a field: the timestamp of a record in Kafka.
KAFKA_TIMESTAMP = "kafka_timestamp"
AVRO = "avro"
JSON = "json"
PROTOBUF = "protobuf"
_FORMATS = (AVRO, JSON, PROTOBUF)
#: What the reference to a message holds.
_MESSAGE_MARKS = (".proto#", ".pb#")
#: The reference to the only message of a registry's schema.
ONLY_MESSAGE = f"{REGISTRY}#"
UNKNOWN = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderId:
    """The producer's ID travels in a Kafka header.

    ``ce_id`` is used together with ``ce_source``: CloudEvents promises that both
    together are unique, not the ID alone.
    """

    header: str

    @property
    def place(self) -> str:
        """Where the ID is, for messages."""
        return f"the header {self.header!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionId:
    """A record is known by its place in Kafka: ``orders[3]@1042``.

    Records that a producer sends twice are two events. What Tallyweir itself reads
    again, after a crash or a restore, still counts once.
    """

    @property
    def place(self) -> str:
        """Where the ID is, for messages."""
        return "the position in Kafka"


#: Where an ID is; the parts of an ID, if it is several values together.
EventId = str | HeaderId | PositionId | tuple[str | HeaderId, ...]


def column_of(part: str | HeaderId) -> str:
    """Return the column that holds an ID, or a part of one."""
    return f"{HEADER_PREFIX}{part.header}" if isinstance(part, HeaderId) else part


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The topics, and the settings for their events.

    Attributes:
        topic: The Kafka topic; the events of several topics form one stream.
        schema: Name of a contract (``flight_departure.v1``), or path of an ``.avsc``
            file next to the pipeline file. With several, an event has one of these
            contracts and the columns of all. For Protobuf, the path of one ``.proto``
            or ``.pb`` file, then ``#`` and the message. For JSON, the path of one
            ``.schema.json`` file. None if ``fields`` names the columns; ``registry``
            if a schema registry has the contract, of Protobuf with ``#`` and the
            message if the schema has several.
        subject: The registry's subject; None for the topic's, ``TOPIC-value``.
        format: How payloads are written: ``avro``, ``json`` or ``protobuf``.
        fields: For JSON, the path of each field to its Postgres type, in the order of
            the columns: ``customer.id`` to ``bigint not null``.
        framing: For Avro, what stands in front of each body: ``confluent``,
            ``single_object``, or ``raw`` for nothing.
        unknown: What becomes of fields of documents that are not named: ``ignore``,
            ``refuse`` or ``rest``, which keeps them in the column ``rest``.
        envelope: ``debezium`` if each value is a change that Debezium wrote. Of JSON,
            ``fields`` then names members of the change; of Avro, its schema does.
        key: How the keys of records are written; None leaves them bytes.
        event_id: The column or header with the producer's ID, ``PositionId()``, or a
            tuple of columns and headers, whose values are the ID together.
        event_time: The field that says when the event happened; ``kafka_timestamp`` for
            the timestamp that Kafka has of the record.
        watermark_delay: How far behind the newest event time of a partition an event
            may still come.
        idle_timeout: Time without events after which a partition no longer holds the
            watermark back.
        future_bound: Event times further ahead than this are dead letters.
        past_bound: Event times further back than this are dead letters; None for no
            bound.
    """

    topic: str | tuple[str, ...]
    schema: str | tuple[str, ...] | None = None
    subject: str | None = None
    format: str = AVRO
    fields: Mapping[str, str] = field(default_factory=dict)
    framing: str = Framing.CONFLUENT
    unknown: str = UNKNOWN
    envelope: str | None = None
    key: SourceKey | None = None
    event_id: str | HeaderId | PositionId | tuple[str | HeaderId, ...]
    event_time: str
    watermark_delay: timedelta
    idle_timeout: timedelta = IDLE_TIMEOUT
    future_bound: timedelta = FUTURE_BOUND
    past_bound: timedelta | None = None

    def __post_init__(self) -> None:
        raise_if_any("Source", self._find_problems())

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, as a tuple."""
        return (self.topic,) if isinstance(self.topic, str) else self.topic

    @property
    def schemas(self) -> tuple[str, ...]:
        """References to all contracts, as ``load_contract`` takes them."""
        if self.fields:
            declared = DeclaredFields(
                fields=self.fields,
                unknown=self.unknown,
                envelope=self.envelope or "",
                framed=self.schema == REGISTRY,
            )
            return (declared.reference,)
        if self.format == JSON:
            return tuple(
                DeclaredFields(
                    fields={}, unknown=self.unknown, schema=str(name)
                ).reference
                for name in self.given_schemas
            )
        if self.format == PROTOBUF and self.given_schemas == (REGISTRY,):
            return (ONLY_MESSAGE,)
        return tuple(
            with_framing(name, self.framing, self.envelope)
            for name in self.given_schemas
        )

    @property
    def given_schemas(self) -> tuple[str, ...]:
        """The contracts as they are named; none if ``fields`` names the columns."""
        if self.fields:
            return ()
        return (self.schema,) if isinstance(self.schema, str) else self.schema or ()

    @property
    def is_of_registry(self) -> bool:
        """Whether the pipeline file leaves a contract to a schema registry."""
        if self.format == PROTOBUF:
            return any(map(is_of_registry, self.given_schemas))
        return REGISTRY in self.given_schemas

    @property
    def wanted_part(self) -> str | None:
        """The message of the subject's schema, empty for the only one.

        None if schemas of the format are one contract each.
        """
        if self.format != PROTOBUF:
            return None
        return self.given_schemas[0].partition("#")[2]

    @property
    def wanted_subject(self) -> str | None:
        """The subject to pin a version of; None if no registry has the contract."""
        if len(self.given_schemas) != 1 or not self.is_of_registry:
            return None
        return self.subject or f"{self.topics[0]}-value"

    @property
    def key_reference(self) -> str | None:
        """The contract of keys, as ``load_event_contracts`` takes it."""
        return None if self.key is None else self.key.reference

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that make up the ID; none if it is the position."""
        match self.event_id:
            case PositionId():
                return ()
            case str() | HeaderId() as part:
                return (column_of(part),)
            case parts:
                return tuple(map(column_of, parts))

    @property
    def id_place(self) -> str:
        """Where the ID is, for messages."""
        if isinstance(self.event_id, HeaderId | PositionId):
            return self.event_id.place
        return f"the columns {', '.join(self.id_columns)}"

    def _find_problems(self) -> Iterator[Problem]:
        yield from self._find_topic_problems()
        yield from self._find_schema_problems()
        yield from self._find_registry_problems()
        yield from self._find_id_problems()
        yield from check_column(self.event_time, ("event_time",))
        yield from check_duration(self.watermark_delay, ("watermark_delay",))
        for name in ("idle_timeout", "future_bound"):
            yield from check_duration(getattr(self, name), (name,), zero=False)
        if self.past_bound is not None:
            yield from check_duration(self.past_bound, ("past_bound",), zero=False)

    def _find_id_problems(self) -> Iterator[Problem]:
        parts = self.event_id
        if isinstance(parts, str | HeaderId | PositionId):
            yield from _check_id_part(parts, ("event_id",))
            return
        for index, part in enumerate(parts):
            yield from _check_id_part(part, ("event_id", index))
        yield from check_distinct(list(self.id_columns), "parts", ("event_id",))
        if len(parts) < 2 or _POSITION in parts:  # noqa: PLR2004 - several
            yield Problem(
                code="PIPELINE_VALUE",
                at=("event_id",),
                saw=f"The parts of the event ID are {', '.join(self.id_columns)}.",
                why="An ID of several parts has at least two, and a position is an ID "
                "by itself.",
                fix="Name the columns and headers that are the ID together.",
            )

    def _find_topic_problems(self) -> Iterator[Problem]:
        if not self.topics:
            yield empty_value(("topic",))
        for index, topic in enumerate(self.topics):
            at = ("topic",) if isinstance(self.topic, str) else ("topic", index)
            yield from check_topic(topic, at)
            if topic in self.topics[:index]:
                yield Problem(
                    code="PIPELINE_DUPLICATE_NAME",
                    at=at,
                    saw=f"The topic {topic!r} is listed twice.",
                    why="Each event of a topic is read only once.",
                    fix="Remove one.",
                )

    def _find_schema_problems(self) -> Iterator[Problem]:
        if self.format not in _FORMATS:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("format",),
                saw=f"The format is {self.format!r}.",
                why="Values of topics are read in the formats that are known.",
                fix=f"Write {' or '.join(_FORMATS)}.",
            )
            return
        if self.envelope is not None and (
            self.envelope not in ENVELOPES or self.format not in {JSON, AVRO}
        ):
            yield Problem(
                code="PIPELINE_VALUE",
                at=("envelope",),
                saw=f"The envelope is {self.envelope!r:.80}, the format {self.format}.",
                why="Envelopes are read in JSON and in Avro.",
                fix=f"Write {' or '.join(ENVELOPES)} and format: {JSON} or {AVRO}, or "
                "remove envelope.",
            )
        yield from self._find_framing_problems()
        if self.format == JSON or self.fields or self.unknown != UNKNOWN:
            yield from self._find_field_problems()
            return
        if self.schema is None:
            yield Problem(
                code="PIPELINE_MISSING_KEY",
                at=("schema",),
                saw="The key 'schema' is missing.",
                why="Values cannot be decoded without their contract.",
                fix="Add it to source; for JSON, add format: json and fields.",
            )
        elif not self.given_schemas or not all(self.given_schemas):
            yield empty_value(("schema",))
        for index, schema in enumerate(self.given_schemas):
            if str(schema).startswith(
                ("{", *(f"{one}:" for one in (*Framing, *ENVELOPES)))
            ):
                yield Problem(
                    code="PIPELINE_VALUE",
                    at=("schema", index),
                    saw=f"The contract is {schema!r:.80}.",
                    why="A contract is a name, or the path of a file.",
                    fix="Write its name or path; the fields of JSON go into fields, "
                    "and how Avro is framed into framing.",
                )
            elif not isinstance(schema, StandIn) and self._is_unfit(schema):
                yield self._unfit_schema(schema, index)
            if schema in self.given_schemas[:index]:
                yield Problem(
                    code="PIPELINE_DUPLICATE_NAME",
                    at=("schema", index),
                    saw=f"The contract {schema!r} is listed twice.",
                    why="Listing a contract once is enough to read its events.",
                    fix="Remove one.",
                )

    def _is_unfit(self, schema: str) -> bool:
        if schema == REGISTRY:
            return False
        return is_message(schema) != (self.format == PROTOBUF)

    def _unfit_schema(self, schema: str, index: int) -> Problem:
        fix = f"Add format: {PROTOBUF}."
        if self.format == PROTOBUF:
            fix = f"Write schema: FILE.proto#MESSAGE, or schema: {REGISTRY}."
        return Problem(
            code="PIPELINE_VALUE",
            at=("schema", index),
            saw=f"The schema is {schema!r:.80}, and the format {self.format}.",
            why="A message is the contract of Protobuf's values, and of no others.",
            fix=fix,
        )

    def _find_registry_problems(self) -> Iterator[Problem]:
        if self.subject is not None and not self.is_of_registry:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("subject",),
                saw="The source has a subject, and its columns are not of a registry.",
                why="A subject is a name of schemas in a schema registry.",
                fix=f"Write schema: {REGISTRY} without fields, or remove subject.",
            )
        if not self.is_of_registry:
            return
        if len(self.given_schemas) > 1:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("schema",),
                saw=f"The contracts are {', '.join(map(str, self.given_schemas))}.",
                why="A registry numbers schemas itself, so its ids could be those of "
                "other contracts.",
                fix=f"Write schema: {REGISTRY} alone.",
            )
        elif self.subject is None and len(self.topics) > 1:
            yield Problem(
                code="PIPELINE_MISSING_KEY",
                at=("subject",),
                saw="There are several topics, and the key 'subject' is missing.",
                why="The columns are those of one subject in the registry.",
                fix="Add it to source, such as subject: orders-value.",
            )

    def _find_framing_problems(self) -> Iterator[Problem]:
        is_free = self.format == AVRO and REGISTRY not in self.given_schemas
        if self.framing not in ([*Framing] if is_free else [Framing.CONFLUENT]):
            yield Problem(
                code="PIPELINE_VALUE",
                at=("framing",),
                saw=f"The framing is {self.framing!r:.80}, the format {self.format}.",
                why="Framings are what stands in front of an Avro body; in front of "
                "a registry's it is Confluent's.",
                fix=f"Write {', '.join(Framing)} with format: {AVRO}, or remove it.",
            )

    def _find_field_problems(self) -> Iterator[Problem]:
        if self.format != JSON:
            at = "fields" if self.fields else "unknown"
            yield Problem(
                code="PIPELINE_VALUE",
                at=(at,),
                saw=f"The source has {at}, and the format {self.format}.",
                why="The contract of its values says which fields there are.",
                fix=f"Add format: {JSON}, or remove {at}.",
            )
        elif not self.fields and (self.schema is None or self.envelope is not None):
            yield Problem(
                code="PIPELINE_MISSING_KEY",
                at=("fields",),
                saw="The key 'fields' is missing.",
                why="Nothing in a JSON document says which columns it has.",
                fix="Add it to source, with a line such as order_id: text not null for "
                "each column; or, without an envelope, schema: FILE.schema.json.",
            )
        if self.format == JSON and len(self.given_schemas) > 1:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("schema",),
                saw=f"The contracts are {', '.join(map(str, self.given_schemas))}.",
                why="A document does not say which of them it is of.",
                fix="Write one schema, or name the columns in fields.",
            )
        if self.fields and self.schema not in {None, REGISTRY}:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("schema",),
                saw="The source has a schema, and fields.",
                why="The columns are those that one of them has.",
                fix=f"Remove one of them; {REGISTRY} goes with fields, for documents "
                "behind a schema registry's ids.",
            )


def is_message(schema: object) -> bool:
    """Tell whether a reference to a contract names a message."""
    if not isinstance(schema, str):
        return False
    if schema.startswith((ONLY_MESSAGE, f"{REGISTRY}:")):
        # A subject may have any characters.
        return "#" in schema.rpartition(":")[2]
    return any(one in schema for one in _MESSAGE_MARKS)


def _check_id_part(part: str | HeaderId | PositionId, at: Path) -> Iterator[Problem]:
    if part == _POSITION:
        yield Problem(
            code="PIPELINE_VALUE",
            at=at,
            saw="The field of the event ID is called position.",
            why="In pipeline files this word means the position in Kafka.",
            fix="Write PositionId(), or rename the field.",
        )
    elif isinstance(part, str):
        yield from check_column(part, at)
    elif isinstance(part, HeaderId) and not part.header.strip():
        yield empty_value(at)


def _event_id(value: Given, info: Info) -> EventId:
    if isinstance(value, HeaderId | tuple):
        return value
    if isinstance(value, YamlList):
        return tuple(_part_of(read_text(one, info)) for one in value)
    text = read_text(value, info)
    return PositionId() if text == _POSITION else _part_of(text)


def _part_of(text: str) -> str | HeaderId:
    if text.startswith(HEADER_PREFIX):
        return HeaderId(header=text.removeprefix(HEADER_PREFIX).strip())
    if text.startswith(_KEY_PREFIX):
        return f"key_{text.removeprefix(_KEY_PREFIX)}"
    return text


class SourceKeys(Keys[Source]):
    """The keys of ``source``."""

    part = Source
    stand_ins: ClassVar[Mapping[str, object]] = {
        "topic": "unnamed",
        "schema": StandIn("unnamed"),
        "subject": None,
        "format": AVRO,
        "framing": Framing.CONFLUENT,
        "unknown": UNKNOWN,
        "envelope": None,
        "event_id": HeaderId(header="unnamed"),
        "event_time": StandIn("unnamed"),
        "watermark_delay": timedelta(),
    }

    topic: OneOrAll
    schema_: OneOrAll | None = None
    subject: Text | None = None
    format: Text = AVRO
    fields: Pairs = Field(default={})
    framing: Text = Framing.CONFLUENT
    unknown_: Text = UNKNOWN
    envelope: Text | None = None
    key: SourceKeyKeys | None = None
    event_id: Annotated[EventId, PlainValidator(_event_id), TEXTS]
    event_time: Text
    watermark_delay: Duration
    idle_timeout: Duration = IDLE_TIMEOUT
    future_bound: Duration = FUTURE_BOUND
    past_bound: Duration | None = None
