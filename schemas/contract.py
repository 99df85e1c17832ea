"""Load contracts by name or path, and find the versions that one can read.

A contract is a file such as ``NAME.vN.avsc``, whose ending says the format. A published
file never changes: a change is a new version in a file next to it. Payloads carry the
contract's schema id, if their format has room for one. Where an external registry has
assigned one, the file says so. Otherwise the id is computed from the schema, so that no
registry is needed and all machines agree.

A pipeline may name the fields of its documents itself. Then these are the contract, and
a reference to it holds all of it, as ``DeclaredFields`` writes it. Instead of the
fields, it may hold the reference to a JSON Schema.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tallyweir.schemas.errors import (
    ContractError,
    IncompatibleContractError,
    noting,
    raise_faults,
)
from tallyweir.schemas.formats.avro.avro_format import Avro
from tallyweir.schemas.formats.avro.debezium_avro import DebeziumAvro
from tallyweir.schemas.formats.format import Format
from tallyweir.schemas.formats.json.framed_json import FramedJson
from tallyweir.schemas.formats.json.json_fields import read_fields
from tallyweir.schemas.formats.json.json_format import Json
from tallyweir.schemas.formats.known_formats import (
    FORMATS,
    format_of,
    split_envelope,
    split_framing,
)
from tallyweir.schemas.formats.plain_format import Plain, plain_schema
from tallyweir.schemas.schema_tree import Record, column_type, may_be_null

CONTRACTS_FOLDER = Path(__file__).parent / "avro"
CONTRACT_BYTES_MAX = 1_000_000
_SHIPPED_SUFFIX = ".avsc"
#: What messages call a contract that a pipeline file holds.
_DECLARED_NAME = "fields"
#: What a pipeline file names in place of a contract if a registry has it; behind ``#``
#: stands which contract of the schema.
REGISTRY = "registry"

_FILE_STEM = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(\.v(?P<version>[1-9]\d{0,5}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractField:
    """A field of the event.

    Attributes:
        name: Also the column's name.
        type: The logical type if the field has one, otherwise the plain type:
            ``timestamp-micros``, ``decimal(10,2)``, ``long``, ``record``; ``json`` as
            ``column_type`` says.
        nullable: Whether an event may lack a value here.
        lacking: The other contracts of the pipeline that do not have the field.
    """

    name: str
    type: str
    nullable: bool
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One version of what an event's bytes mean; safe to decode with.

    Attributes:
        name: Shared by all versions: ``flight_departure``.
        version: Rises from 1.
        schema_id: The number that says which contract wrote a payload; 1 to 2**31 - 1.
        text: The schema in canonical form.
        fields: The event's fields, in wire order.
        path: The file it came from; of fields that a pipeline names, its folder.
        format: How the payloads are written.
        tree: The types of the fields.
        is_registered: Whether it comes from a schema registry. Then ``name`` is the
            subject that the pipeline reads, and ``version`` is 0 for other schemas than
            the pinned one.
    """

    name: str
    version: int
    schema_id: int
    text: str
    fields: tuple[ContractField, ...]
    path: Path = field(compare=False)
    format: Format
    tree: Record = field(repr=False, compare=False)
    is_registered: bool = False

    @property
    def reference(self) -> str:
        """How messages call it: ``flight_departure.v1``, or ``fields``."""
        if not self.version:
            return f"schema {self.schema_id} of the registry"
        if self.name == _DECLARED_NAME:
            return self.name
        return f"{self.name}.v{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFields:
    """What a pipeline says about its documents.

    Attributes:
        fields: Type of each path, in the order of the columns; none if a schema
            declares them.
        unknown: ``ignore``, ``refuse`` or ``rest``: what becomes of other fields.
        envelope: What is around each event, such as ``debezium``; empty for nothing.
        framed: Whether a schema registry's id is in front of each document.
        schema: The file of the JSON Schema that declares the fields, ``REGISTRY``, or
            the reference of a ``Pin``; empty if the pipeline names the fields.
    """

    fields: Mapping[str, str]
    unknown: str
    envelope: str = ""
    framed: bool = False
    schema: str = ""

    @property
    def reference(self) -> str:
        """All of it as one text, which ``load_contract`` takes."""
        # What tells one from another comes first, because messages show the beginning.
        written: dict[str, object] = (
            {"schema": self.schema}
            if self.schema
            else {"fields": list(self.fields.items())}
        )
        written["unknown"] = self.unknown
        if self.envelope:
            written["envelope"] = self.envelope
        if self.framed:
            written["framed"] = True
        return json.dumps(written, separators=(",", ":"))

    @classmethod
    def of(cls, reference: str) -> DeclaredFields | None:
        """Read a reference; None if it is a contract's name or file."""
        if not reference.startswith("{"):
            return None
        try:
            written = json.loads(reference)
            return cls(
                fields=dict(written.get("fields", {})),
                unknown=written["unknown"],
                envelope=written.get("envelope", ""),
                framed=written.get("framed", False),
                schema=written.get("schema", ""),
            )
        except (KeyError, TypeError, ValueError):
            return None


def is_of_registry(reference: object) -> bool:
    """Tell whether a pipeline file leaves a contract to a schema registry."""
    return isinstance(reference, str) and reference.partition("#")[0] == REGISTRY


def load_contract(reference: str, beside: Path | None = None) -> Contract:
    """Load the contract that a pipeline names.

    Args:
        reference: ``NAME.vN`` of a contract shipped here, the path of a file with the
            ending of a format, such as ``.avsc``, each with a framing in front where
            it is not Confluent's and an envelope where there is one
            (``with_framing``), or ``DeclaredFields.reference``.
            If a file holds several contracts, the name of one follows behind ``#``.
        beside: The pipeline file or its folder; relative paths start there.

    Raises:
        ContractError: The contract does not exist, it is not a schema, or another
            contract in the same folder has the same id.
        UnsafeContractError: A payload of it could kill a decoder.
            Both errors list everything that is wrong with the file.
    """
    declared = DeclaredFields.of(reference)
    if declared is not None and not declared.schema:
        return _declared_contract(declared, beside)
    if declared is not None:
        reference = declared.schema
    envelope, reference = split_envelope(reference)
    if is_of_registry(reference):
        raise ContractError(
            "CONTRACT_NOT_PINNED",
            saw="The contract is in a schema registry.",
            why="Its version is pinned when the pipeline first starts.",
            fix="Start the pipeline first, and name its home database.",
        )
    if declared is not None:
        documents = Json(declared.unknown)
        return _read_contract(_beside(beside, reference), documents)
    framing, reference = split_framing(reference)
    written_in, part = format_of(reference), ""
    if written_in is None:
        if reference not in _shipped_references():
            raise _missing_contract(reference)
        written_in = FORMATS[_SHIPPED_SUFFIX]
        path = CONTRACTS_FOLDER / f"{reference}{_SHIPPED_SUFFIX}"
    else:
        file = reference
        if written_in.has_parts:
            file, _, part = reference.partition("#")
        path = _beside(beside, file)
    if isinstance(written_in, Avro):
        written_in = (DebeziumAvro if envelope else Avro)(framing)
    contract = _read_contract(path, written_in, part)
    if written_in.names_writers:
        _require_distinct_ids(contract)
    return contract


def _beside(beside: Path | None, file: str) -> Path:
    folder = beside or Path()
    return (folder if folder.is_dir() else folder.parent) / file


def plain_contract(kind: str, name: str) -> Contract:
    """Return the contract of payloads that are one value each.

    Args:
        kind: One of ``PLAIN_TYPES``.
        name: The name of the field that holds the value, and of the contract.
    """
    schema = plain_schema(kind, name)
    return Contract(
        name=name,
        version=1,
        schema_id=_computed_id(schema.text),
        text=schema.text,
        fields=list_fields(schema.tree),
        path=Path(),
        format=Plain(),
        tree=schema.tree,
    )


def versions_of(contract: Contract) -> dict[int, Contract]:
    """Find the writers whose events a reader of ``contract`` understands.

    Older versions must be readable, because the topic may still hold their events.
    A newer version that is not readable is left out: its events become dead letters
    with reason ``UNKNOWN_SCHEMA``. If payloads do not name their writers, only the
    contract itself is one.

    Returns:
        The contract and the other readable versions of its name in its folder, by
        schema id.

    Raises:
        IncompatibleContractError: Older versions cannot be read; the error shows
            each difference.
        ContractError: Another version's file is not a usable contract.
    """
    readable = {contract.schema_id: contract}
    if not contract.format.names_writers:
        return readable
    faults: list[ContractError] = []
    for path in _siblings(contract, f"{contract.name}.v*"):
        if _split_stem(path, contract.format)[1] == contract.version:
            continue
        with noting(faults):
            writer = _read_contract(path, contract.format)
            differences = contract.format.find_incompatibilities(
                contract.tree, writer.tree
            )
            if not differences:
                readable[writer.schema_id] = writer
            elif writer.version < contract.version:
                raise _incompatible(contract, writer, differences)
    raise_faults(faults)
    return readable


def contracts_beside(contract: Contract) -> Iterator[Contract]:
    """Yield the other usable contracts of a contract's format in its folder."""
    for path in _siblings(contract, "*"):
        if path.samefile(contract.path):
            continue
        try:
            yield _read_contract(path, contract.format)
        except ContractError:
            # A broken contract stops only the pipelines that use it.
            continue


def list_fields(tree: Record) -> tuple[ContractField, ...]:
    """List a record's fields as the columns they become."""
    return tuple(
        ContractField(
            name=entry.name,
            type=column_type(entry.node),
            nullable=may_be_null(entry.node),
        )
        for entry in tree.fields
    )


def _incompatible(
    contract: Contract, writer: Contract, differences: Sequence[str]
) -> IncompatibleContractError:
    return IncompatibleContractError(
        "CONTRACT_INCOMPATIBLE",
        saw=f"{contract.reference} cannot read {writer.reference}: "
        f"{'; '.join(differences)}.",
        why="The topic may still hold events of the older version.",
        fix=f"Change {contract.path.name} so that it reads both (defaults, "
        "aliases, wider types), or give the new event a name of its own.",
    )


def _read_contract(path: Path, written_in: Format, part: str = "") -> Contract:
    content = _read_file(path)
    faults: list[ContractError] = []
    with noting(faults):
        name, version = _split_stem(path, written_in)
    with noting(faults):
        schema = written_in.read_schema(content, path, part)
    raise_faults(faults)
    return Contract(
        name=f"{name}#{part}" if part else name,
        version=version,
        schema_id=schema.schema_id or _computed_id(schema.text),
        text=schema.text,
        fields=list_fields(schema.tree),
        path=path,
        format=written_in,
        tree=schema.tree,
    )


def _declared_contract(declared: DeclaredFields, beside: Path | None) -> Contract:
    schema = read_fields(
        declared.fields,
        unknown=declared.unknown,
        envelope=declared.envelope,
        name=_DECLARED_NAME,
    )
    return Contract(
        name=_DECLARED_NAME,
        version=1,
        schema_id=_computed_id(schema.text),
        text=schema.text,
        fields=list_fields(schema.tree),
        path=beside or Path(),
        format=(FramedJson if declared.framed else Json)(declared.unknown),
        tree=schema.tree,
    )


def _split_stem(path: Path, written_in: Format) -> tuple[str, int]:
    match = _FILE_STEM.fullmatch(path.name.removesuffix(written_in.suffix))
    if match is None:
        raise ContractError(
            "CONTRACT_FILE_NAME",
            saw=f"The contract's file is called {path.name!r}.",
            why="The file's name gives the contract its name and version.",
            fix=f"Call it NAME.vN{written_in.suffix}, such as "
            f"page_view.v1{written_in.suffix}.",
        )
    return match["name"], int(match["version"] or 1)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(CONTRACT_BYTES_MAX + 1)
    except (OSError, ValueError) as exc:
        # Python raises ValueError for a name with a zero byte.
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise ContractError(
            "CONTRACT_MISSING",
            saw=f"{str(path)!r:.300} cannot be read ({reason}).",
            why="Events cannot be decoded without their contract.",
            fix="Correct the path, which starts at the pipeline file's folder.",
        ) from exc
    if len(content) > CONTRACT_BYTES_MAX:
        raise ContractError(
            "CONTRACT_MALFORMED",
            saw=f"{path} is larger than {CONTRACT_BYTES_MAX:,} bytes.",
            why="A contract is never that large.",
            fix="Correct the path, or the file.",
        )
    return content


def _computed_id(text: str) -> int:
    digest = hashlib.sha256(text.encode()).digest()
    return max(1, int.from_bytes(digest[:4]) >> 1)


def _siblings(contract: Contract, stem: str) -> list[Path]:
    """List the files of the contract's folder and format whose stems match."""
    return sorted(contract.path.parent.glob(f"{stem}{contract.format.suffix}"))


def _require_distinct_ids(contract: Contract) -> None:
    for other in contracts_beside(contract):
        if other.schema_id == contract.schema_id:
            raise ContractError(
                "CONTRACT_ID_TAKEN",
                saw=f"{contract.path.name} and {other.path.name} both have schema id "
                f"{contract.schema_id}.",
                why=(
                    "The id in a payload would not identify the contract that wrote it."
                ),
                fix="Remove one of the files, or change the schema_id of one.",
            )


def _shipped_references() -> list[str]:
    found = CONTRACTS_FOLDER.glob(f"*{_SHIPPED_SUFFIX}")
    return sorted(path.stem for path in found)


def _missing_contract(reference: str) -> ContractError:
    known = _shipped_references()
    nearest = difflib.get_close_matches(reference, known, n=1)
    hint = f"Write {nearest[0]}" if nearest else f"Write one of {', '.join(known)}"
    return ContractError(
        "CONTRACT_MISSING",
        saw=f"There is no contract {reference!r:.300}.",
        why="Events cannot be decoded without their contract.",
        fix=f"{hint}, or the path of an {' or '.join(FORMATS)} file next to "
        "the pipeline file.",
    )
