"""The pipeline that a look proposes, and its file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import yaml

from tallyweir.schemas.contract import (
    CONTRACTS_FOLDER,
    REGISTRY,
    Contract,
    ContractField,
    DeclaredFields,
    load_contract,
)
from tallyweir.schemas.formats.debezium_envelope import DEBEZIUM, ROW
from tallyweir.schemas.pipeline.checks.names import check_table
from tallyweir.schemas.pipeline.events.source import AVRO, PROTOBUF
from tallyweir.schemas.pipeline.file_schema import editor_line
from tallyweir.services.look.disorder import written_delay
from tallyweir.services.look.document_fields import LookedField
from tallyweir.services.look.id_candidates import HEADER, IdCandidate, choose_id
from tallyweir.services.look.time_candidates import (
    KAFKA_TIMESTAMP,
    TimeCandidate,
    choose_time,
)
from tallyweir.services.look.topic_profile import TopicProfile
from tallyweir.services.look.value_kinds import CHANGES, DOCUMENTS, ValueKind
from tallyweir.sinks.protocol.durations import format_duration

POSITION = "position"
#: The readable kind must have this share of the values, or no file is written.
MAIN_SHARE = 0.5
#: How values behind ids of a registry are written.
_FRAMED = {ValueKind.AVRO: AVRO, ValueKind.FRAMED_PROTOBUF: PROTOBUF}
_READABLE = (*DOCUMENTS, *_FRAMED, *CHANGES)
_ID_TYPES = frozenset({"text", "uuid", "integer", "bigint", "smallint"})
_AVRO_IDS = frozenset({"string", "int", "long", "uuid", "bytes"})
_AVRO_TIMES = frozenset({"timestamp-millis", "timestamp-micros"})
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NO_NAME = re.compile(r"[^a-z0-9_-]+")
_NO_TABLE = re.compile(r"[^A-Za-z0-9_]+")
_PIPELINE_CHARACTERS_MAX = 40
_TABLE_CHARACTERS_MAX = 50
_LEAST_DELAY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A pipeline for a topic.

    Attributes:
        fields: Of JSON, the fields that become columns.
        contract: Of Avro, the contract, if it is known here.
        of_registry: The format of a schema registry's contract; empty if it has none.
        envelope: What is around the fields; empty if nothing is.
        event_id: The chosen ID; None for the position.
        event_time: The chosen time; None for Kafka's timestamp.
        ids: All possible IDs.
        times: All possible event times, the fallback last.
    """

    topic: str
    fields: Sequence[LookedField] = ()
    contract: Contract | None = None
    of_registry: str = ""
    envelope: str = ""
    event_id: IdCandidate | None
    event_time: TimeCandidate | None
    ids: Sequence[IdCandidate]
    times: Sequence[TimeCandidate]

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return pipeline_name(self.topic)

    @property
    def watermark_delay(self) -> timedelta:
        """The delay by which no event that was read is late."""
        chosen = self.event_time or next(
            (one for one in self.times if one.name == KAFKA_TIMESTAMP), None
        )
        return written_delay(chosen.for_all if chosen else _LEAST_DELAY)

    @property
    def declared(self) -> dict[str, str]:
        """The fields as a pipeline file has them."""
        return {one.name: self._type_of(one) for one in self.fields}

    @property
    def id_name(self) -> str:
        """What ``event_id`` says: a column's name, a header or the position."""
        return self._column(self.event_id.name) if self.event_id else POSITION

    @property
    def time_name(self) -> str:
        """What ``event_time`` says."""
        if self.event_time is None:
            return KAFKA_TIMESTAMP
        return self._column(self.event_time.name)

    def load_contract(self) -> Contract:
        """Return the contract of the events, by which the driver will read them.

        It must not be a registry's.
        """
        if self.contract is not None:
            return self.contract
        declared = DeclaredFields(
            fields=self.declared, unknown="rest", envelope=self.envelope
        )
        return load_contract(declared.reference)

    def _type_of(self, one: LookedField) -> str:
        usual = one.path[1:] if self.envelope and one.path[0] == ROW else one.path
        column = f" as {one.column}" if one.column != "_".join(usual) else ""
        chosen = (self.event_id, self.event_time)
        is_needed = any(one.name == other.name for other in chosen if other)
        return f"{one.type.sql}{column}{' not null' if is_needed else ''}"

    def _column(self, name: str) -> str:
        return next((one.column for one in self.fields if one.name == name), name)


def pipeline_name(topic: str) -> str:
    """Make a pipeline's name of a topic's."""
    name = _NO_NAME.sub("-", topic.lower()).strip("-_")
    if not name[:1].isalpha():
        name = f"topic-{name}".rstrip("-")
    return name[:_PIPELINE_CHARACTERS_MAX].rstrip("-")


def table_name(topic: str) -> str:
    """Make a table's name of a topic's."""
    name = _NO_TABLE.sub("_", topic).strip("_").lower()[:_TABLE_CHARACTERS_MAX]
    if not name[:1].isalpha() or list(check_table(name, ("table",))):
        name = f"events_{name}".rstrip("_")
    return name


def main_kind(profile: TopicProfile) -> ValueKind | None:
    """The kind that a pipeline can read and most values have; None if there is none."""
    for kind in _READABLE:
        if profile.kinds[kind] > profile.values * MAIN_SHARE:
            return kind
    return None


def propose(profile: TopicProfile, topic: str) -> Proposal | None:
    """Propose a pipeline; None if this release does not read what most values are."""
    kind = main_kind(profile)
    ids, times = profile.ids.count(), profile.times.measure()
    headers = {one.name for one in ids if one.name.startswith(HEADER)}
    everything = [*times, *profile.kafka_times.measure()]
    if kind in DOCUMENTS:
        fields = profile.fields.list_fields()
        if not fields:
            return None
        id_fields = {one.name for one in fields if one.type.sql in _ID_TYPES}
        instants = {one.name for one in fields if _is_instant(one)}
        return Proposal(
            topic=topic,
            fields=fields,
            event_id=choose_id(ids, frozenset(id_fields | headers), topic),
            event_time=choose_time(times, frozenset(instants)),
            ids=[one for one in ids if one.name in _shown_ids(id_fields, headers)],
            times=everything,
        )
    if kind in CHANGES:
        # The same row is in many changes, so no field of it is an ID.
        return Proposal(
            topic=topic,
            fields=profile.changes.list_fields(),
            envelope=DEBEZIUM,
            event_id=None,
            event_time=None,
            ids=[],
            times=[*profile.kafka_times.measure()],
        )
    if kind not in _FRAMED:
        return None
    contract = _main_contract(profile) if kind is ValueKind.AVRO else None
    if contract is None:
        return Proposal(
            topic=topic,
            of_registry=_FRAMED[kind],
            event_id=choose_id(ids, frozenset(headers), topic),
            event_time=None,
            ids=[one for one in ids if one.name in _shown_ids(set(), headers)],
            times=[*profile.kafka_times.measure()],
        )
    id_names = _names(contract.fields, _AVRO_IDS)
    return Proposal(
        topic=topic,
        contract=contract,
        event_id=choose_id(ids, frozenset(id_names | headers), topic),
        event_time=choose_time(times, frozenset(_names(contract.fields, _AVRO_TIMES))),
        ids=[one for one in ids if one.name in _shown_ids(id_names, headers)],
        times=everything,
    )


def _is_instant(one: LookedField) -> bool:
    return one.type.sql.startswith("timestamptz")


def _shown_ids(fields: set[str], headers: set[str]) -> set[str]:
    return fields | headers | {"key"}


def _names(fields: Sequence[ContractField], types: frozenset[str]) -> set[str]:
    return {one.name for one in fields if one.type in types}


def _main_contract(profile: TopicProfile) -> Contract | None:
    for schema_id, count in profile.schema_ids.most_common():
        contract = profile.contracts.get(schema_id)
        if contract is not None and count > profile.values * MAIN_SHARE:
            return contract
    return None


def write_yaml(proposal: Proposal, read: str, folder: Path) -> str:
    """Write the pipeline file.

    Args:
        proposal: The pipeline.
        read: What was read of the topic, as one line.
        folder: Where the file goes; the paths in it start there.
    """
    delay = format_duration(proposal.watermark_delay)
    lines = [
        f"# Made by tallyweir look: {read}.",
        f"pipeline: {proposal.name}",
        "source:",
        f"  topic: {_scalar(proposal.topic)}",
        *_content_lines(proposal, folder),
        f"  event_id: {_scalar(proposal.id_name)}",
        f"  event_time: {_scalar(proposal.time_name)}",
        f"  watermark_delay: {delay}",
        "outputs:",
        f"  - append: {{table: {_scalar(table_name(proposal.topic))}}}",
    ]
    return editor_line(folder) + "".join(f"{line}\n" for line in lines)


def _content_lines(proposal: Proposal, folder: Path) -> list[str]:
    contract = proposal.contract
    if proposal.of_registry:
        is_usual = proposal.of_registry == AVRO
        written = [] if is_usual else [f"  format: {proposal.of_registry}"]
        return [*written, f"  schema: {REGISTRY}"]
    if contract is None:
        notes = {one.name: one.type.note for one in proposal.fields}
        fields = [
            f"    {_scalar(name)}: {_scalar(kind)}"
            + (f"  # {notes[name]}" if notes[name] else "")
            for name, kind in proposal.declared.items()
        ]
        envelope = [f"  envelope: {proposal.envelope}"] if proposal.envelope else []
        return ["  format: json", *envelope, "  fields:", *fields, "  unknown: rest"]
    if contract.path.parent == CONTRACTS_FOLDER:
        return [f"  schema: {contract.reference}"]
    path = contract.path.resolve()
    if path.is_relative_to(folder.resolve()):
        path = path.relative_to(folder.resolve())
    return [f"  schema: {_scalar(str(path))}"]


def _scalar(text: str) -> str:
    """Write a text so that YAML reads the same text."""
    is_word = all(map(_PLAIN.fullmatch, text.split(" ")))
    if is_word and yaml.safe_load(text) == text:
        return text
    if text.isprintable() and "'" not in text:
        is_type = re.fullmatch(r"[a-z]+(\([0-9]+,[0-9]+\))?( [A-Za-z0-9_]+)*", text)
        return text if is_type else f"'{text}'"
    written: str = yaml.safe_dump(
        text, default_style='"', allow_unicode=True, width=float("inf")
    )
    return written.strip()
