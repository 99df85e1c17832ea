"""Report a payload to people: decoded as far as it goes, with its writer's differences.

It serves dead letters; nothing here decides whether a payload is an event.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import fastavro

from schemas.codec import diagnose
from schemas.contract import Contract, load_contract
from schemas.errors import ContractError, DecodeError
from schemas.event_contracts import EventContracts
from schemas.formats.avro.compatibility import find_incompatibilities
from schemas.formats.avro.strict_walk import MalformedError, compile_walker
from schemas.formats.avro.wire_format import HEADER_BYTES, split

#: The most characters of a value that are shown.
_VALUE_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadField:
    """A field that could be read.

    Attributes:
        from_byte: Where the field begins in the payload.
        until_byte: Where the next field begins.
        value: The value as readable text, cut if it is long.
    """

    name: str
    type: str
    from_byte: int
    until_byte: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReport:
    """What a payload's bytes tell.

    Attributes:
        schema_id: The id in its frame; None if it has no frame.
        writer: The contract with that id; None if no contract has it.
        readers: The contracts that the pipeline reads.
        fields: The readable fields, in wire order.
        failed_field: The first field that is not readable; None if all are.
        failed_at: The byte at which that field begins.
        problem: Why the payload is not an event; None if it is one.
        differences: The reasons why a reader cannot read the writer's events.
    """

    schema_id: int | None
    writer: str | None
    readers: tuple[str, ...]
    fields: tuple[PayloadField, ...]
    failed_field: str | None
    failed_at: int | None
    problem: str | None
    differences: tuple[str, ...]


def report_payload(payload: bytes | None, contracts: EventContracts) -> PayloadReport:
    """Read a payload as far as it goes. No bytes make this function raise.

    Args:
        payload: A Kafka value; None is a tombstone.
        contracts: The pipeline's contracts.
    """
    error = diagnose(payload, contracts.writers)
    schema_id = _schema_id(payload)
    writer = None if schema_id is None else _find_writer(schema_id, contracts)
    fields: list[PayloadField] = []
    failed: tuple[str, int] | None = None
    if writer is not None and payload is not None:
        fields, failed = _read_fields(payload, writer)
    return PayloadReport(
        schema_id=schema_id,
        writer=None if writer is None else writer.reference,
        readers=tuple(one.contract.reference for one in contracts.each),
        fields=tuple(fields),
        failed_field=failed and failed[0],
        failed_at=failed and failed[1],
        problem=None if error is None else str(error),
        differences=() if writer is None else _differences(writer, contracts),
    )


def readable_field(payload: bytes | None, writer: Contract, name: str) -> object | None:
    """Read one field of a payload that need not be an event.

    Args:
        payload: The payload with its header; bytes after the field are ignored.
        writer: The contract that the header names.
        name: The field's name.

    Returns:
        The field's value; None if it, or a field before it, does not decode.
    """
    if payload is None:
        return None
    position = HEADER_BYTES
    for count, node in enumerate(writer.tree.fields, start=1):
        try:
            position = compile_walker(node.node, node.name)(payload, position)
        except MalformedError:
            break
        if node.name == name:
            read = _read_values(payload[HEADER_BYTES:position], writer, count)
            return read.get(name)
    return None


def _schema_id(payload: bytes | None) -> int | None:
    try:
        return split(payload)[0]
    except DecodeError:
        return None


def _find_writer(schema_id: int, contracts: EventContracts) -> Contract | None:
    """Find a contract by its id, even if the pipeline cannot read it."""
    if schema_id in contracts.writers:
        return contracts.writers[schema_id]
    for folder in {one.contract.path.parent for one in contracts.each}:
        for path in sorted(folder.glob("*.avsc")):
            try:
                contract = load_contract(str(path.absolute()))
            except ContractError:
                continue
            if contract.schema_id == schema_id:
                return contract
    return None


def _read_fields(
    payload: bytes, writer: Contract
) -> tuple[list[PayloadField], tuple[str, int] | None]:
    position = HEADER_BYTES
    places: list[tuple[int, int]] = []
    failed = None
    for node in writer.tree.fields:
        try:
            end = compile_walker(node.node, node.name)(payload, position)
        except MalformedError:
            failed = node.name, position
            break
        places.append((position, end))
        position = end
    values = _read_values(payload[HEADER_BYTES:position], writer, len(places))
    return [
        PayloadField(
            name=field.name,
            type=field.type,
            from_byte=begin,
            until_byte=end,
            value=_shown(values.get(field.name)),
        )
        for field, (begin, end) in zip(writer.fields, places, strict=False)
    ], failed


def _read_values(body: bytes, writer: Contract, count: int) -> Mapping[str, Any]:
    # The first fields make a valid record, because a named type is declared at its
    # first use.
    schema = json.loads(writer.text)
    schema["fields"] = schema["fields"][:count]
    try:
        parsed = fastavro.parse_schema(schema)
        read = fastavro.schemaless_reader(io.BytesIO(body), parsed, None)
    except Exception:  # noqa: BLE001 - what the walker passed is to be shown, not judged
        return {}
    return cast(Mapping[str, Any], read)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _VALUE_MAX else f"{text[:_VALUE_MAX]}…"


def _differences(writer: Contract, contracts: EventContracts) -> tuple[str, ...]:
    return tuple(
        f"{one.contract.reference}: {difference}"
        for one in contracts.each
        if one.contract.name == writer.name
        for difference in find_incompatibilities(one.contract.tree, writer.tree)
    )
