"""A frame says which contract wrote a body, and the strictest reader takes it off."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from random import Random

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.codec import decode, diagnose, encode
from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.schemas.errors import ContractError, DecodeError
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.avro.avro_format import Avro
from tallyweir.schemas.formats.avro.column_decoder import ColumnDecoder
from tallyweir.schemas.formats.avro.tests.decoded_batches import (
    are_strictly_events,
    one_field,
    only,
)
from tallyweir.schemas.formats.avro.tests.made_payloads import PayloadMaker
from tallyweir.schemas.formats.framing import (
    Framing,
    fingerprint,
    frame,
    split,
)
from tallyweir.schemas.payload_report import report_payload
from tallyweir.schemas.tests.strategies import contract_of

_FIELDS = [
    {"name": "id", "type": "string"},
    {"name": "n", "type": ["null", "long"]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]
_RECORD: dict[str, object] = {"id": "a", "n": None, "day": 0, "tags": ["x"]}


@given(schema_id=st.integers(1, (1 << 31) - 1), body=st.binary())
def test_split_undoes_frame(schema_id: int, body: bytes) -> None:
    """No byte of id or body is lost."""
    assert split(frame(schema_id, body)) == (schema_id, body)


def test_a_frame_is_confluents() -> None:
    """Other tools read the same bytes."""
    assert frame(258, b"\x02a") == b"\x00\x00\x00\x01\x02\x02a"


def test_a_decode_error_survives_pickling() -> None:
    """It travels from Spark's workers to the driver."""
    with pytest.raises(DecodeError) as caught:
        split(b"{}")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == "BAD_MAGIC: the first byte is 0x7b, expected 0x00"


def _contract(framing: Framing, name: str = "Order", schema_id: int = 7) -> Contract:
    schema: dict[str, object] = {"type": "record", "name": name, "fields": _FIELDS}
    made = contract_of(schema, schema_id=schema_id)
    return replace(made, name=name.lower(), format=Avro(framing))


def _body(record: dict[str, object]) -> bytes:
    schema = {"type": "record", "name": "Order", "fields": _FIELDS}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def test_a_fingerprint_is_that_of_avros_own_tests() -> None:
    """Low byte first, of the canonical form; documentation does not count."""
    assert fingerprint('"int"').hex() == "8f5c393f1ad57572"
    assert fingerprint('{"type": "int", "doc": "x"}') == fingerprint('"int"')


@pytest.mark.parametrize(
    ("framing", "header"),
    [
        (Framing.CONFLUENT, b"\x00\x00\x00\x00\x07"),
        (Framing.SINGLE_OBJECT, b"\xc3\x01" + fingerprint(_contract(Framing.RAW).text)),
        (Framing.RAW, b""),
    ],
)
def test_an_event_is_a_header_and_the_body_that_fastavro_writes(
    framing: Framing, header: bytes
) -> None:
    """And comes back from one payload and from many, also as a request's body."""
    contract = _contract(framing)
    payload = encode(contract, _RECORD)
    assert payload == header + _body(_RECORD)
    expected = decode(payload, {7: contract})
    assert expected["id"] == "a"
    assert expected == contract.format.decode_body(_body(_RECORD), contract)
    decoder = ColumnDecoder(only(contract), ["id", "n", "day"])
    seen = pickle.loads(pickle.dumps(decoder)).decode(pa.array([payload, None, b""]))
    assert [True, False, False] == seen.is_event.tolist()
    assert ["a", None, None] == seen.columns["id"].to_pylist()
    report = report_payload(payload[:-1], only(contract))
    assert (report.writer, report.failed_field) == (contract.reference, "tags")


@pytest.mark.parametrize("framing", Framing)
@pytest.mark.parametrize("rows", [1, 5, 300])
def test_many_and_one_agree_on_every_damage(framing: Framing, rows: int) -> None:
    """On payloads that were cut, joined, changed, or made of nothing."""
    seed = 20_260_000 + rows
    chance, maker = Random(seed), PayloadMaker(seed, slips=0.01)
    contract = _contract(framing)
    header = framing.header(contract)
    damages = [*contract.format.damages.values()]
    assert len(damages) == (3 if framing is Framing.RAW else 5)
    for _ in range(2_000 // rows):
        payloads: list[bytes | None] = []
        for _ in range(rows):
            good = header + maker.make(contract.tree)
            bad = maker.damage(good), chance.choice(damages)(good, contract, chance)
            payloads.append(chance.choice([good, *bad]))
        decoder = ColumnDecoder(only(contract), ["id", "n", "day"])
        seen = decoder.decode(pa.array(payloads, pa.binary()))
        strictly = are_strictly_events(only(contract), payloads)
        assert strictly == seen.is_event.tolist(), f"seed {seed}"


@pytest.mark.parametrize("framing", Framing)
def test_a_damage_of_a_payload_is_no_event(framing: Framing) -> None:
    """Whatever the framing, and each time."""
    contract, chance = _contract(framing), Random(7)
    payload = encode(contract, _RECORD)
    for name, damage in contract.format.damages.items():
        for _ in range(50):
            error = diagnose(damage(payload, contract, chance), {7: contract})
            assert error is not None, name


def test_two_contracts_of_single_objects_are_told_apart() -> None:
    """By their fingerprints; a third one is nobody's."""
    order, payment = (
        _contract(Framing.SINGLE_OBJECT, name, number)
        for number, name in enumerate(("Order", "Payment"), start=1)
    )
    other = _contract(Framing.SINGLE_OBJECT, "Other", 3)
    contracts = EventContracts(
        tuple(
            EventContract(contract=one, writers={one.schema_id: one})
            for one in (order, payment)
        )
    )
    payloads = [encode(one, _RECORD) for one in (order, payment, other)]
    seen = contracts.decoder(["id"]).decode(pa.array(payloads, pa.binary()))
    assert [True, True, False] == seen.is_event.tolist()
    error = diagnose(payloads[2], contracts.writers)
    assert error is not None
    number = int.from_bytes(fingerprint(other.text), "little")
    assert str(error) == (
        f"UNKNOWN_SCHEMA: fingerprint {number:016x} is not one of those known here: "
        "1 (order.v1), 2 (payment.v1)"
    )
    twin = replace(order, name="twin", schema_id=9)
    with pytest.raises(ContractError, match="CONTRACTS_DIFFER"):
        EventContracts(
            tuple(
                EventContract(contract=one, writers={one.schema_id: one})
                for one in (order, twin)
            )
        )


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"\xc3\x02" + bytes(8), "BAD_MAGIC: the first bytes are 0xc302, expected"),
        (b"\xc3", "MALFORMED: fingerprint: the payload ended at byte 1 of 10"),
        (b"", "EMPTY_PAYLOAD: the payload holds no bytes"),
    ],
)
def test_a_broken_fingerprint_is_told(payload: bytes, told: str) -> None:
    """With what was expected."""
    error = diagnose(payload, {7: _contract(Framing.SINGLE_OBJECT)})
    assert str(error).startswith(told)


@pytest.mark.parametrize("expected", Framing)
@pytest.mark.parametrize("sent", Framing)
def test_another_framing_is_told_with_the_line_to_write(
    expected: Framing, sent: Framing
) -> None:
    """Because a topic in another framing has no event at all."""
    payload = encode(_contract(sent), _RECORD)
    error = diagnose(payload, {7: _contract(expected)})
    if sent is expected:
        assert error is None
    else:
        assert f"write framing: {sent}" in str(error)


@pytest.mark.parametrize("framing", Framing)
def test_a_reference_may_begin_with_a_framing(framing: Framing) -> None:
    """As pipelines write it to the ledger; Confluent's is none."""
    found = load_contract(f"{framing}:page_view.v1")
    assert found.format == Avro(framing)
    assert found.reference == "page_view.v1"


def test_raw_payloads_name_no_second_contract() -> None:
    """Nothing in them would tell the two apart."""
    each = tuple(
        EventContract(contract=one, writers={one.schema_id: one})
        for one in (_contract(Framing.RAW), replace(one_field("int"), schema_id=8))
    )
    with pytest.raises(ContractError, match="CONTRACTS_DIFFER"):
        EventContracts(each)
