"""Report a payload to people: decoded as far as it goes, with its writer's differences.

It serves dead letters; nothing here decides whether a payload is an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallyweir.schemas.contract import Contract, contracts_beside
from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.formats.format import BegunEvent

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
        schema_id: The id in it; None if it holds none.
        writer: The contract that wrote it; None if no contract has its id.
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
    error = contracts.diagnose(payload)
    writer = _find_writer(payload, contracts)
    begun = BegunEvent(fields=(), failed_at=None)
    if writer is not None and payload is not None:
        begun = writer.format.read_begun(payload, writer)
    failed = None if begun.failed_at is None else len(begun.fields)
    return PayloadReport(
        schema_id=contracts.format.schema_id(payload),
        writer=None if writer is None else writer.reference,
        readers=tuple(one.contract.reference for one in contracts.each),
        fields=_fields(begun, writer),
        failed_field=None
        if writer is None or failed is None
        else writer.fields[failed].name,
        failed_at=begun.failed_at,
        problem=None if error is None else str(error),
        differences=() if writer is None else _differences(writer, contracts),
    )


def readable_field(
    payload: bytes | None, writers: Mapping[int, Contract], name: str
) -> object | None:
    """Read one field of a payload that need not be an event.

    Args:
        payload: The payload; bytes after the field are ignored.
        writers: The contracts that may have written it, by schema id.
        name: The field's name.

    Returns:
        The field's value; None if it, or a field before it, does not decode.
    """
    form = next(iter(writers.values())).format
    writer = form.writer_of(payload, writers)
    if payload is None or writer is None:
        return None
    begun = writer.format.read_begun(payload, writer, until=name)
    values = {
        field.name: one.value
        for field, one in zip(writer.fields, begun.fields, strict=False)
    }
    return values.get(name)


def _find_writer(payload: bytes | None, contracts: EventContracts) -> Contract | None:
    """Find the contract that wrote a payload, even if the pipeline cannot read it."""
    known = contracts.format.writer_of(payload, contracts.writers)
    if known is not None or not contracts.format.names_writers:
        return known
    return next(
        (
            contract
            for one in contracts.each
            if not one.contract.is_registered
            for contract in contracts_beside(one.contract)
            if contract.format.writer_of(payload, {contract.schema_id: contract})
        ),
        None,
    )


def _fields(begun: BegunEvent, writer: Contract | None) -> tuple[PayloadField, ...]:
    return tuple(
        PayloadField(
            name=field.name,
            type=field.type,
            from_byte=one.from_byte,
            until_byte=one.until_byte,
            value=_shown(one.value),
        )
        for field, one in zip(
            writer.fields if writer else (), begun.fields, strict=False
        )
    )


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _VALUE_MAX else f"{text[:_VALUE_MAX]}…"


def _differences(writer: Contract, contracts: EventContracts) -> tuple[str, ...]:
    return tuple(
        f"{one.contract.reference}: {difference}"
        for one in contracts.each
        if one.contract.name == writer.name
        for difference in writer.format.find_incompatibilities(
            one.contract.tree, writer.tree
        )
    )
