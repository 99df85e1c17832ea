"""How a value behind a schema registry's id is read: by which contracts.

A payload holds the id of its writer's schema, which ``formats.framing`` takes off. The
reader is one version of a subject, pinned when the pipeline first started. The driver
asks the registry for a schema once (``spark_jobs.registry``), and the home database
keeps it; nothing here asks. A format then reads the value by the pinned version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallyweir.schemas.contract import (
    CONTRACT_BYTES_MAX,
    REGISTRY,
    Contract,
    DeclaredFields,
    list_fields,
)
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.formats.format import Format, Schema, require_readable
from tallyweir.schemas.formats.json.framed_json import FramedJson
from tallyweir.schemas.formats.known_formats import (
    ENVELOPED_FORMATS,
    REGISTRY_FORMATS,
    split_envelope,
)
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

_PREFIX = f"{REGISTRY}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The version of a subject that a pipeline reads its events by.

    Attributes:
        subject: The subject.
        version: Its version.
        schema_id: The id of the version's schema.
        part: Which contract of the schema, empty for the only one; None if schemas of
            its format are one contract each.
    """

    subject: str
    version: int
    schema_id: int
    part: str | None = None

    @property
    def reference(self) -> str:
        """All of it as one text: ``registry:orders-value:3:17``, or with ``#Order``."""
        part = "" if self.part is None else f"#{self.part}"
        return f"{_PREFIX}{self.subject}:{self.version}:{self.schema_id}{part}"

    @classmethod
    def of(cls, reference: str) -> Pin | None:
        """Read a reference; None if it is not of a registry, or not pinned."""
        declared = DeclaredFields.of(reference)
        if declared is not None:
            reference = declared.schema
        _, reference = split_envelope(reference)
        if not reference.startswith(_PREFIX):
            return None
        subject, *numbers = reference.removeprefix(_PREFIX).rsplit(":", 2)
        part = None
        if numbers and "#" in numbers[-1]:
            numbers[-1], _, part = numbers[-1].partition("#")
        if len(numbers) < 2 or not all(one.isdecimal() for one in numbers):  # noqa: PLR2004 - a version and an id
            return None
        version, schema_id = map(int, numbers)
        return cls(subject=subject, version=version, schema_id=schema_id, part=part)

    @classmethod
    def find(cls, references: Iterable[str], subject: str) -> Pin | None:
        """Return the pinned version of a subject; None if no reference is one."""
        pins = map(cls.of, references)
        return next((one for one in pins if one and one.subject == subject), None)


def pinned_contract(
    reference: str,
    pin: Pin,
    beside: Path | None,
    registered: Iterable[RegisteredSchema],
) -> Contract:
    """Return the contract of a pinned version.

    Args:
        reference: As the pipeline names it, with its envelope; of documents,
            ``DeclaredFields.reference``.
        pin: The version that it names.
        beside: As in ``load_contract``.
        registered: The schemas that are kept of the registry.

    Raises:
        ContractError: ``CONTRACT_MISSING``: its schema is not kept; or it is not a
            usable contract.
    """
    found = next((one for one in registered if one.schema_id == pin.schema_id), None)
    if found is None:
        raise ContractError(
            "CONTRACT_MISSING",
            saw=f"The schema {pin.schema_id} of {pin.subject} is not kept in the home "
            "database.",
            why="Events cannot be decoded without their contract.",
            fix="Name the home database in which the pipeline was started.",
        )
    declared, formats = DeclaredFields.of(reference), REGISTRY_FORMATS
    envelope, _ = split_envelope(reference)
    if envelope is not None:
        formats = ENVELOPED_FORMATS
    if declared is not None:
        formats = {FramedJson.registry_kind: FramedJson(declared.unknown)}
    written_in = _format_of(found, formats)
    if written_in.has_parts != (pin.part is not None):
        raise ContractError(
            "CONTRACT_KIND",
            saw=f"{_told(found)} is of the kind {found.kind}.",
            why="The format of a pipeline's source is that of its contract.",
            fix=f"Write format: {found.kind.lower()} in source; for a lookup topic of "
            "Protobuf, schema: registry#MESSAGE.",
        )
    read = written_in.read_registered(found, pin.part or "")
    return _contract(found, read, pin.subject, beside, written_in, version=pin.version)


def require_kind(schema: RegisteredSchema, wanted: str) -> None:
    """Refuse a schema that is not of the wanted kind, such as ``JSON``.

    Raises:
        ContractError: ``CONTRACT_KIND``.
    """
    if schema.kind != wanted:
        raise ContractError(
            "CONTRACT_KIND",
            saw=f"{_told(schema)} is of the kind {schema.kind!r:.40}.",
            why=f"The pipeline's values are of the kind {wanted}.",
            fix="Name the subject of such a schema, or correct source: {format: ...}.",
        )


def find_writers(
    reader: Contract, registered: Sequence[RegisteredSchema]
) -> tuple[dict[int, Contract], dict[int, str]]:
    """Find which schemas of the registry wrote events that a reader understands.

    Returns:
        The writers by id, the reader among them; and why each other schema is none.
    """
    writers = {reader.schema_id: reader}
    unreadable: dict[int, str] = {}
    if not reader.format.names_writers:
        return writers, unreadable
    is_enveloped = reader.format in ENVELOPED_FORMATS.values()
    formats = ENVELOPED_FORMATS if is_enveloped else REGISTRY_FORMATS
    for one in registered:
        if one.schema_id == reader.schema_id:
            continue
        try:
            written_in = _format_of(one, formats)
            if written_in != reader.format:
                require_readable(reader, [f"it is a schema of {one.kind}"])
            read = written_in.read_writer(one, reader)
        except ContractError as error:
            unreadable[one.schema_id] = error.saw
            continue
        writers[one.schema_id] = _contract(
            one, read, reader.name, reader.path, written_in
        )
    return writers, unreadable


def _format_of(schema: RegisteredSchema, formats: Mapping[str, Format]) -> Format:
    """Return the format of a schema.

    Raises:
        ContractError: It is none of these, or the schema is too large.
    """
    written_in = formats.get(schema.kind)
    if written_in is None:
        raise ContractError(
            "CONTRACT_KIND",
            saw=f"{_told(schema)} is of the kind {schema.kind!r:.40}.",
            why=f"The kinds that are read so are {', '.join(formats)}.",
            fix="Name the subject of such a schema, or correct source: {format: ...}.",
        )
    size = len(schema.text) + sum(len(text) for _, text in schema.references)
    if size > CONTRACT_BYTES_MAX:
        raise ContractError(
            "CONTRACT_MALFORMED",
            saw=f"{_told(schema)} has {size:,} characters with all that it refers to.",
            why=f"A contract has at most {CONTRACT_BYTES_MAX:,}.",
            fix="Register a smaller one.",
        )
    return written_in


def _contract(  # noqa: PLR0913, PLR0917 - the parts of a contract
    schema: RegisteredSchema,
    read: Schema,
    subject: str,
    beside: Path | None,
    written_in: Format,
    version: int = 0,
) -> Contract:
    return Contract(
        name=subject,
        version=version,
        schema_id=schema.schema_id,
        text=read.text,
        fields=list_fields(read.tree),
        path=beside or Path(),
        format=written_in,
        tree=read.tree,
        is_registered=True,
    )


def _told(schema: RegisteredSchema) -> str:
    return f"The schema {schema.schema_id} of the registry"
