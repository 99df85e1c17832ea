"""No payload raises anything but ``DecodeError``, or takes more than its share."""

from __future__ import annotations

import pickle
import tracemalloc
from random import Random

import pyarrow as pa
import pytest

from tallyweir.schemas.formats.json.json_damages import DAMAGES
from tallyweir.schemas.formats.json.json_decoder import JsonDecoder
from tallyweir.schemas.formats.json.json_format import Json
from tallyweir.schemas.formats.json.tests.json_contracts import (
    ORDER_FIELDS,
    contract_of,
    contracts_of,
)
from tallyweir.schemas.formats.json.tests.made_documents import FIELDS, DocumentMaker

_GOOD = b'{"order_id":"a","amount":1.50,"customer":{"id":7},"note":"x"}'
_MANY = 200_000
_BOMBS = [
    b"[" * _MANY,
    b'{"a":' * _MANY,
    b'{"order_id":' + b"[" * _MANY,
    b'{"amount":' + b"9" * _MANY + b"}",
    b'{"amount":1e' + b"9" * _MANY + b"}",
    b'{"amount":0.' + b"0" * _MANY + b"1}",
    b'{"order_id":"' + b"\\u0061" * 40_000 + b"\\",
    b'{"order_id":"' + b"\\" * _MANY + b'"}',
    b" " * _MANY,
    b'"' * _MANY,
    b'{"' + b"n" * _MANY + b'":1}',
    b'{"tags":[' + b"1e39," * 20_000 + b"1]}",
    b"{" + b",".join(b'"%d":%d' % (n, n) for n in range(10_000)) + b"}",
]


@pytest.mark.parametrize("bomb", _BOMBS, ids=range(len(_BOMBS)))
def test_a_bomb_takes_memory_by_its_size_only(bomb: bytes) -> None:
    """Alone, and among good ones."""
    contract = contract_of(ORDER_FIELDS)
    decoder = JsonDecoder(contracts_of(contract), ["order_id", "amount", "tags"])
    payloads = pa.array([_GOOD] * 20 + [bomb, _GOOD], pa.binary())
    decoder.decode(payloads.slice(0, 20))
    tracemalloc.start()
    try:
        Json().diagnose(bomb, {1: contract})
        Json().read_begun(bomb, contract)
        decoded = decoder.decode(payloads)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoded.is_event.tolist()[:20] == [True] * 20
    assert decoded.is_event[21]
    assert peak < 60 * len(bomb)


def test_noise_is_refused_quietly() -> None:
    """Random bytes, and documents damaged several times."""
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    maker = DocumentMaker(seed, slips=0.2)
    contract = contract_of(FIELDS, "rest")
    payloads = [maker.source.randbytes(maker.source.randrange(80)) for _ in range(500)]
    for _ in range(500):
        payload = maker.write(maker.make())
        for _ in range(maker.source.randrange(5)):
            payload = maker.damage(payload) or b"{"
        payloads.append(payload)
    found = [Json().diagnose(one, {1: contract}) for one in payloads]
    for payload in payloads:
        Json().read_begun(payload, contract)
    wanted = [one.name for one in contract.fields]
    decoded = JsonDecoder(contracts_of(contract), wanted).decode(
        pa.array(payloads, pa.binary())
    )
    assert decoded.is_event.tolist() == [one is None for one in found]


@pytest.mark.parametrize("path", FIELDS)
@pytest.mark.parametrize("others", [0, 20])
def test_a_field_without_a_value_is_refused(path: str, others: int) -> None:
    """Whatever its type, and whether others have one or none does."""
    contract = contract_of({path: FIELDS[path].replace(" not null", "")})
    *outer, name = path.split(".")
    begin = "".join(f'{{"{one}":' for one in outer) + f'{{"{name}":'
    ends = (",", ',"b":1', "") if others else (',"b":1',)
    broken = [f"{begin}{end}{'}' * (len(outer) + 1)}".encode() for end in ends]
    good = f"{begin}null{'}' * (len(outer) + 1)}".encode()
    payloads = [*broken * 20, *[good] * others]
    decoded = JsonDecoder(contracts_of(contract), []).decode(
        pa.array(payloads, pa.binary())
    )
    assert decoded.is_event.tolist() == [False] * 20 * len(broken) + [True] * others


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_makes_a_dead_letter(damage: str) -> None:
    """Whatever becomes of unknown fields."""
    source = Random(damage)
    for unknown in ("ignore", "refuse", "rest"):
        contract = contract_of({"order_id": "text"}, unknown)
        for payload in (b'{"order_id":"a"}', b"{}"):
            for _ in range(50):
                broken = DAMAGES[damage](payload, contract, source)
                assert Json().diagnose(broken, {1: contract}) is not None, broken


def test_a_decoder_can_be_pickled() -> None:
    """Tasks get it from the driver."""
    contract = contract_of(ORDER_FIELDS, "rest")
    decoder = JsonDecoder(contracts_of(contract), ["order_id", "rest"])
    payloads = pa.array([_GOOD, None] * 20, pa.large_binary())
    one = decoder.decode(payloads)
    other = pickle.loads(pickle.dumps(decoder)).decode(payloads)
    assert one.columns == other.columns
    assert one.columns["rest"][0].as_py() == '{"note":"x"}'
    assert one.unnamed == {"note": 20}


def test_an_empty_batch_has_all_columns() -> None:
    """They have their types, and no rows."""
    contract = contract_of(ORDER_FIELDS)
    wanted = [one.name for one in contract.fields]
    decoded = JsonDecoder(contracts_of(contract), wanted).decode(
        pa.array([], pa.binary())
    )
    assert list(decoded.columns) == wanted
    assert decoded.is_event.size == 0
    assert decoded.columns["amount"].type == pa.decimal128(12, 2)


def test_names_of_unnamed_fields_are_bounded() -> None:
    """A topic with a name of its own in each record reports some tens of them."""
    contract = contract_of({"a": "text"})
    payloads = [b'{"k%d":1,"usual":2}' % n for n in range(1_000)]
    decoded = JsonDecoder(contracts_of(contract), ["a"]).decode(pa.array(payloads))
    assert decoded.is_event.all()
    assert len(decoded.unnamed) == 64
    assert decoded.unnamed["usual"] == 1_000
