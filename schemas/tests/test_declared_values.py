"""What emit, ingest and dead letters make of fields that a pipeline names."""

from __future__ import annotations

import pytest

from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import Contract, DeclaredFields, load_contract
from tallyweir.schemas.json_records import compile_reader
from tallyweir.schemas.payload_report import readable_field


def _contract(**fields: str) -> Contract:
    return load_contract(DeclaredFields(fields=fields, unknown="ignore").reference)


@pytest.mark.parametrize(
    ("unit", "number"), [("s", 1714564800), ("ms", 1714564800123), ("us", 1)]
)
def test_a_number_of_a_unit_is_written_as_it_is_given(unit: str, number: int) -> None:
    """Rows of files and requests have it in the field's own unit."""
    contract = _contract(at=f"timestamptz epoch {unit}")
    record = compile_reader(contract)({"at": number})
    assert f'{{"at":{number}}}'.encode() == encode(contract, record)


@pytest.mark.parametrize(
    ("payload", "read"),
    [
        (b'{"order_id":12,"amount":0.001}', 12),
        (b'{"order_id":12,"x":NaN}', 12),
        (b'{"order_id":12', None),
        (b'{"amount":1,"order_id":12}x', 12),
    ],
)
def test_an_id_is_read_wherever_it_stands_but_not_a_part_of_one(
    payload: bytes, read: int | None
) -> None:
    """A dead letter must not have the ID of another event."""
    contract = _contract(amount="numeric(12,2)", order_id="bigint not null")
    writers = {contract.schema_id: contract}
    assert read == readable_field(payload, writers, "order_id")
