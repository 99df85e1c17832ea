"""The topics that the service accepts events for, from its pipeline files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tallyweir.schemas.codec import EventRecord, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import DecodeError, EncodeError
from tallyweir.schemas.json_records import UnreadableTextError, compile_reader
from tallyweir.services.process.refusals import RefusedError
from tallyweir.services.produce.source_section import SourceSection, read_source_section
from tallyweir.services.produce.written_contract import load_written_contract
from tallyweir.sinks.protocol.errors import ConfigurationError

#: Types of a field that can hold an ID.
_ID_TYPES = frozenset({"string", "int", "long", "uuid", "bytes", "decimal(20,0)"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTopic:
    """A topic, and the form of its events.

    Attributes:
        name: The topic's name.
        section: The source section of the pipeline file.
        contract: The contract by which events are checked and encoded.
        record_of: Makes a record of a parsed JSON object.
        id_field_type: The type of the field that holds the ID; None if a header does.
    """

    name: str
    section: SourceSection
    contract: Contract
    record_of: Callable[[dict[str, object]], EventRecord] = field(repr=False)
    id_field_type: str | None

    def read_json(self, value: object) -> EventRecord:
        """Make a record of a parsed JSON value.

        Raises:
            RefusedError: ``RECORD_MISFIT``: it is not an object, or a text in it does
                not read as its field's type.
        """
        if not isinstance(value, dict):
            raise self._misfit(f"an event is an object, not {_kind(value)}")
        try:
            return self.record_of(value)
        except UnreadableTextError as exc:
            raise self._misfit(f"field {exc.at}: {exc.saw}") from exc

    def read_body(self, body: bytes) -> EventRecord:
        """Read one value of the contract's format, strictly and up to its last byte.

        Raises:
            RefusedError: ``RECORD_MISFIT``.
        """
        try:
            return self.contract.format.decode_body(body, self.contract)
        except DecodeError as exc:
            raise self._misfit(str(exc)) from exc

    def encode(self, record: EventRecord) -> bytes:
        """Write a record in the pipeline's wire format.

        Raises:
            RefusedError: ``RECORD_MISFIT``: it does not fit the contract.
        """
        try:
            return encode(self.contract, record)
        except EncodeError as exc:
            saw = exc.saw.partition(": ")[2].rstrip(".")
            raise self._misfit(saw) from exc

    def _misfit(self, saw: str) -> RefusedError:
        return RefusedError(
            "RECORD_MISFIT",
            status=422,
            saw=f"The event does not fit {self.contract.reference}: {saw}.",
            why="A pipeline would misread it or reject it.",
            fix="Correct the event.",
        )


def _kind(value: object) -> str:
    names = {list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def read_served_topics(pipelines: Iterable[Path]) -> dict[str, ServedTopic]:
    """Read the topics of pipeline files, by name.

    Raises:
        ConfigurationError: A file is not a pipeline or reads several contracts, two
            files contradict each other about a topic, or a file names a field for the
            ID that cannot hold one.
        ContractError, RetryableError: As ``load_written_contract`` does.
    """
    served: dict[str, ServedTopic] = {}
    for path in pipelines:
        section = read_source_section(path)
        schema = _only_schema(path, section)
        for name in section.topics:
            contract = load_written_contract(
                section, schema=schema, topic=name, path=path
            )
            topic = _serve(name, section, contract)
            _check_agreement(path, topic, served.setdefault(name, topic))
    return served


def _only_schema(path: Path, section: SourceSection) -> str:
    """Return a file's only contract; with several, a body could be of any of them."""
    schema, *others = section.schemas
    if others:
        raise ConfigurationError(
            "INGEST_SEVERAL_CONTRACTS",
            saw=f"{path} reads {', '.join(section.schemas)}.",
            why="A request does not say which contract its events follow.",
            fix="Give the service separate files, one for each topic: source.topic, "
            "source.event_id and the one source.schema of the topic are enough.",
        )
    return schema


def _check_agreement(path: Path, topic: ServedTopic, known: ServedTopic) -> None:
    if (known.contract, known.section.event_id) != (
        topic.contract,
        topic.section.event_id,
    ):
        raise ConfigurationError(
            "TOPIC_CONTRADICTION",
            saw=f"{path} reads {topic.name} as {topic.contract.reference} with the ID "
            f"in {topic.section.event_id}, another file as {known.contract.reference} "
            f"with the ID in {known.section.event_id}.",
            why="The service writes an event once, and both pipelines must be able to "
            "read it.",
            fix="Give each pipeline its own topic, or give both the same source.",
        )


def _serve(name: str, section: SourceSection, contract: Contract) -> ServedTopic:
    id_field_type = None
    if section.id_is_position:
        raise ConfigurationError(
            "ID_FIELD_UNUSABLE",
            saw=f"The pipeline takes the position in {name} as the event ID.",
            why="A sender that repeats a request would be counted twice.",
            fix="Name a field with the producer's ID, or header:ce_id.",
        )
    if section.id_header is None and section.id_field is None:
        raise ConfigurationError(
            "ID_FIELD_UNUSABLE",
            saw=f"The pipeline takes the event ID from {section.event_id}.",
            why="The service knows an event by one field or one header.",
            fix="Name a field with the producer's ID, or header:ce_id.",
        )
    if section.id_header is None:
        types = {field.name: field.type for field in contract.fields}
        id_field_type = types.get(section.event_id)
        if id_field_type not in _ID_TYPES:
            found = f"is a {id_field_type}" if id_field_type else "does not exist"
            raise ConfigurationError(
                "ID_FIELD_UNUSABLE",
                saw=f"The field {section.event_id} of {contract.reference} {found}.",
                why="The pipeline recognises repeats by this field.",
                fix=f"Name a field of type {', '.join(sorted(_ID_TYPES))}, or "
                "header:ce_id.",
            )
    return ServedTopic(
        name=name,
        section=section,
        contract=contract,
        record_of=compile_reader(contract),
        id_field_type=id_field_type,
    )


def require_served(
    served: Mapping[str, ServedTopic], allowed: frozenset[str], name: str
) -> ServedTopic:
    """Find a topic for a producer.

    Raises:
        RefusedError: ``TOPIC_NOT_ALLOWED``, the same whether or not the topic exists;
            ``TOPIC_NOT_SERVED`` if the producer may write to it but no file names it.
    """
    if name not in allowed:
        raise RefusedError(
            "TOPIC_NOT_ALLOWED",
            status=403,
            saw="The key does not allow this topic.",
            why="A key allows only the topics that it was created for.",
            fix="Correct the path, or ask for a key with this topic.",
        )
    topic = served.get(name)
    if topic is None:
        raise RefusedError(
            "TOPIC_NOT_SERVED",
            status=404,
            saw="No pipeline file of this service names the topic.",
            why="Without a contract the service cannot check events.",
            fix="Ask the operator to start the service with the topic's pipeline file.",
        )
    return topic
