"""Contracts of JSON documents for tests, made of fields as a pipeline names them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tallyweir.schemas.contract import Contract, list_fields
from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.format import EventRecord
from tallyweir.schemas.formats.json.json_fields import read_fields
from tallyweir.schemas.formats.json.json_format import Json

ORDER_FIELDS = {
    "order_id": "text not null",
    "customer.id": "bigint",
    "customer.segment": "text",
    "amount": "numeric(12,2) not null",
    "quantity": "integer",
    "placed_at": "timestamptz",
    "is_gift": "boolean",
    "score": "double precision",
    "tags": "jsonb",
}


def contract_of(fields: Mapping[str, str], unknown: str = "ignore") -> Contract:
    """Make a contract of fields."""
    schema = read_fields(fields, unknown=unknown)
    return Contract(
        name="event",
        version=1,
        schema_id=1,
        text=schema.text,
        fields=list_fields(schema.tree),
        path=Path("event.json-fields"),
        format=Json(),
        tree=schema.tree,
    )


def contracts_of(contract: Contract) -> EventContracts:
    """Return a contract as the only one of a pipeline."""
    return EventContracts((EventContract(contract=contract, writers={1: contract}),))


def decode(contract: Contract, payload: bytes | str | None) -> EventRecord:
    """Decode one payload."""
    raw = payload.encode() if isinstance(payload, str) else payload
    return Json().decode(raw, {1: contract})


def fault_of(contract: Contract, payload: bytes | str | None) -> DecodeError:
    """Return why a payload is no event."""
    raw = payload.encode() if isinstance(payload, str) else payload
    error = Json().diagnose(raw, {1: contract})
    assert error is not None, f"{payload!r} is an event"
    return error
