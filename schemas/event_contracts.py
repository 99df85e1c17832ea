"""The contracts of a pipeline's events, and the decoder of whole batches by them.

Tasks decode by ``EventContracts.decoder``; ``schemas.formats`` has each format's own.

A pipeline may read events of several contracts, in one topic or in many. The schema
id in each payload says which contract wrote it. An event has the columns of all
contracts; those that its own contract lacks are null.

The contracts are never merged into one schema: a default of one would then fill a
column of the other's events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tallyweir.schemas.codec import diagnose
from tallyweir.schemas.contract import (
    Contract,
    ContractField,
    load_contract,
    plain_contract,
    versions_of,
)
from tallyweir.schemas.errors import (
    ContractError,
    DecodeError,
    ReasonCode,
    noting,
    raise_faults,
)
from tallyweir.schemas.formats.format import Format
from tallyweir.schemas.formats.plain_format import PLAIN_TYPES, Plain
from tallyweir.schemas.registered_contract import Pin, find_writers, pinned_contract
from tallyweir.schemas.schema_tree import RecordField, describe, item_of
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from tallyweir.schemas.formats.decoded_columns import EventDecoder


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContract:
    """One contract, with all versions that may have written its events.

    Attributes:
        contract: The contract by which the events are read.
        writers: The versions that may have written them, by schema id; ``contract``
            is one of them.
        unreadable: Why other schema ids of its registry wrote none of them.
    """

    contract: Contract
    writers: Mapping[int, Contract]
    unreadable: Mapping[int, str] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> frozenset[str]:
        """The fields that its events have."""
        return frozenset(entry.name for entry in self.contract.fields)


@dataclass(frozen=True, slots=True)
class EventContracts:
    """All contracts of one pipeline; any two of them can be told apart.

    Attributes:
        each: The contracts, at least one, in the order of the pipeline's list.
        key: How keys are read; None if they are bytes.
        payload_fields: The fields of all contracts in that order, each name once. A
            field that some contract lacks is nullable.
        fields: The same, followed by the columns of the key.
        writers: All versions of all contracts, by schema id.

    Raises:
        ContractError: ``CONTRACT_TWICE``, ``CONTRACT_ID_TAKEN`` or
            ``CONTRACTS_DIFFER``.
    """

    each: tuple[EventContract, ...]
    key: KeyContracts | None = None
    payload_fields: tuple[ContractField, ...] = field(init=False)
    fields: tuple[ContractField, ...] = field(init=False)
    writers: Mapping[int, Contract] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _require_distinct_names(self.each)
        _require_named_writers(self.each)
        object.__setattr__(self, "writers", _merge_writers(self.each))
        _require_distinct_marks(self.each)
        payload_fields = _merge_fields(self.each)
        of_key = () if self.key is None else self.key.fields
        object.__setattr__(self, "payload_fields", payload_fields)
        object.__setattr__(self, "fields", (*payload_fields, *of_key))

    @property
    def format(self) -> Format:
        """The format of all contracts."""
        return self.each[0].contract.format

    def diagnose(self, payload: bytes | None) -> DecodeError | None:
        """Say why a payload is not an event, for its dead letter; None if it is one."""
        error = self.format.diagnose(payload, self.writers)
        if error is None or error.reason_code is not ReasonCode.UNKNOWN_SCHEMA:
            return error
        schema_id = self.format.schema_id(payload) or 0
        for one in self.each:
            if schema_id in one.unreadable:
                detail = f"schema id {schema_id}: {one.unreadable[schema_id]}"
                return DecodeError(ReasonCode.UNKNOWN_SCHEMA, detail)
        return error

    def wanted_schemas(self, unknown: frozenset[int]) -> frozenset[int]:
        """Return those of some unknown schema ids that a registry may know."""
        first = self.each[0]
        if not first.contract.is_registered:
            return frozenset()
        return unknown - first.unreadable.keys()

    def decoder(self, wanted: Collection[str]) -> EventDecoder:
        """Compile the contracts to the decoder of whole batches.

        Args:
            wanted: The fields to return, as in ``Format.decoder``; those of the key
                are left out.
        """
        names = {one.name for one in self.payload_fields}
        return self.format.decoder(self, [name for name in wanted if name in names])


@dataclass(frozen=True, slots=True)
class KeyContracts:
    """How the keys of records are read: as payloads of a contract of their own.

    Attributes:
        contracts: The contract.
        prefix: What precedes a field's name in the name of its column.
    """

    contracts: EventContracts
    prefix: str

    @property
    def fields(self) -> tuple[ContractField, ...]:
        """The columns of the key."""
        return tuple(
            replace(
                one,
                name=f"{self.prefix}{one.name}",
                nullable=one.nullable or self.is_plain,
            )
            for one in self.contracts.fields
        )

    @property
    def is_plain(self) -> bool:
        """Whether a key is one value."""
        return isinstance(self.contracts.format, Plain)

    @property
    def may_lack(self) -> bool:
        """Whether a record may have no key; then all columns of the key are null."""
        return all(one.nullable for one in self.fields)

    def decoder(self, wanted: Collection[str]) -> EventDecoder:
        """Compile the contract to the decoder of whole batches of keys.

        Args:
            wanted: The columns to return; the decoder calls them as the contract does.
        """
        names = {f"{self.prefix}{one.name}": one.name for one in self.contracts.fields}
        return self.contracts.decoder([names[one] for one in wanted if one in names])

    def find_fault(self, key: bytes | None) -> str | None:
        """Say why a key cannot be read; None if it can."""
        if key is None:
            return None
        error = diagnose(key, self.contracts.writers)
        return None if error is None else str(error)


def load_key_contracts(reference: str, beside: Path | None = None) -> KeyContracts:
    """Load the contract of a topic's keys.

    Args:
        reference: A type of ``PLAIN_TYPES``, or as in ``load_contract``.
        beside: As in ``load_contract``.

    Raises:
        ContractError: As ``load_event_contract`` does.
    """
    if reference not in PLAIN_TYPES:
        found = load_event_contract(reference, beside)
        return KeyContracts(EventContracts((found,)), "key_")
    contract = plain_contract(reference, "key")
    found = EventContract(contract=contract, writers={contract.schema_id: contract})
    return KeyContracts(EventContracts((found,)), "")


def load_event_contract(
    reference: str,
    beside: Path | None = None,
    registered: Sequence[RegisteredSchema] = (),
) -> EventContract:
    """Load one contract that a pipeline names, and its versions.

    Args:
        reference: As in ``load_contract``, or ``Pin.reference``.
        beside: As in ``load_contract``.
        registered: The schemas that are kept of the registry.

    Raises:
        ContractError: As ``load_contract``, ``versions_of`` and ``pinned_contract`` do.
    """
    pin = Pin.of(reference)
    if pin is not None:
        reader = pinned_contract(reference, pin, beside, registered)
        writers, unreadable = find_writers(reader, registered)
        return EventContract(contract=reader, writers=writers, unreadable=unreadable)
    contract = load_contract(reference, beside)
    return EventContract(contract=contract, writers=versions_of(contract))


def load_event_contracts(
    references: Sequence[str],
    beside: Path | None = None,
    registered: Sequence[RegisteredSchema] = (),
    *,
    key: str | None = None,
) -> EventContracts:
    """Load all contracts that a pipeline names.

    Args:
        references: The references, in the order in which the pipeline lists them.
        beside: As in ``load_contract``.
        registered: As in ``load_event_contract``.
        key: How keys are read, as ``load_key_contracts`` takes it; None if they are
            not.

    Raises:
        ContractError: Some contracts cannot be used, or not together.
    """
    found: list[EventContract] = []
    faults: list[ContractError] = []
    for reference in references:
        with noting(faults):
            found.append(load_event_contract(reference, beside, registered))
    of_key = None
    if key is not None:
        with noting(faults):
            of_key = load_key_contracts(key, beside)
    raise_faults(faults)
    return EventContracts(tuple(found), of_key)


def _require_distinct_names(each: Sequence[EventContract]) -> None:
    known: dict[str, Contract] = {}
    for contract in (one.contract for one in each):
        other = known.setdefault(contract.name, contract)
        if other is not contract:
            raise ContractError(
                "CONTRACT_TWICE",
                saw=f"{other.reference} and {contract.reference} have the same name.",
                why="All versions of a contract are read as the one that is named.",
                fix="Name only the version whose fields the pipeline needs; "
                "contracts of other events need other names.",
            )


def _require_named_writers(each: Sequence[EventContract]) -> None:
    first, *others = (one.contract for one in each)
    for other in others:
        if other.format != first.format or not first.format.names_writers:
            raise ContractError(
                "CONTRACTS_DIFFER",
                saw=f"{first.reference} is in {first.path.name}, {other.reference} in "
                f"{other.path.name}.",
                why="A payload would not identify the contract that wrote it.",
                fix="Name one contract, or several of the same format that have "
                "schema ids.",
            )


def _require_distinct_marks(each: Sequence[EventContract]) -> None:
    marked: dict[object, Contract] = {}
    for one in each:
        for writer in one.writers.values():
            other = marked.setdefault(writer.format.mark(writer), one.contract)
            if other is not one.contract:
                raise ContractError(
                    "CONTRACTS_DIFFER",
                    saw=f"{other.reference} and {writer.reference} have the same "
                    "fields and the same name inside.",
                    why="A payload would not identify the contract that wrote it.",
                    fix="Give the records different names.",
                )


def _merge_writers(each: Sequence[EventContract]) -> dict[int, Contract]:
    merged: dict[int, Contract] = {}
    for schema_id, writer in (item for one in each for item in one.writers.items()):
        other = merged.setdefault(schema_id, writer)
        if other is not writer:
            raise ContractError(
                "CONTRACT_ID_TAKEN",
                saw=f"{other.reference} and {writer.reference} both have schema id "
                f"{schema_id}.",
                why=(
                    "The id in a payload would not identify the contract that wrote it."
                ),
                fix="Change the schema_id of one of them.",
            )
    return merged


def _merge_fields(each: Sequence[EventContract]) -> tuple[ContractField, ...]:
    owners: dict[str, tuple[Contract, RecordField]] = {}
    merged: dict[str, ContractField] = {}
    faults: list[ContractError] = []
    for contract in (one.contract for one in each):
        entries = zip(contract.tree.fields, contract.fields, strict=True)
        for entry, column in entries:
            # Spark ignores the case of column names.
            owner, known = owners.setdefault(entry.name.casefold(), (contract, entry))
            if (known.name, item_of(known.node)) != (entry.name, item_of(entry.node)):
                faults.append(_differ(owner, known, contract, entry))
            former = merged.setdefault(column.name, column)
            nullable = former.nullable or column.nullable
            merged[column.name] = replace(former, nullable=nullable)
    raise_faults(faults)
    return tuple(_with_lacks(column, each) for column in merged.values())


def _with_lacks(column: ContractField, each: Sequence[EventContract]) -> ContractField:
    lacking = tuple(
        one.contract.reference for one in each if column.name not in one.names
    )
    return replace(column, nullable=True, lacking=lacking) if lacking else column


def _differ(
    owner: Contract, known: RecordField, contract: Contract, entry: RecordField
) -> ContractError:
    types = [describe(item_of(one.node)) for one in (known, entry)]
    inside = " of other names or parts" if types[0] == types[1] else ""
    if known.name != entry.name:
        inside = ""
    return ContractError(
        "CONTRACTS_DIFFER",
        saw=f"{owner.reference} has the field {known.name} ({types[0]}), "
        f"{contract.reference} has {entry.name} ({types[1]}{inside}).",
        why="Events of all contracts share one table, in which each column has one "
        "type and one name, regardless of case.",
        fix="Rename the field in a new version of one contract, with the old name as "
        "its alias, or give both fields the same type.",
    )
