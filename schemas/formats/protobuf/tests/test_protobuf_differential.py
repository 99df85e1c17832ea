"""Random messages of random types mean here what they mean to the official library.

``python -m`` this module with a number takes that many types.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError as ParserError

from tallyweir.schemas.codec import decode, encode
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.protobuf.message_fields import can_lack, first_unset
from tallyweir.schemas.formats.protobuf.proto_file import message_of
from tallyweir.schemas.formats.protobuf.protobuf_codec import (
    MessageEvent,
    compile_codec,
)
from tallyweir.schemas.formats.protobuf.protobuf_decoder import ProtobufDecoder
from tallyweir.schemas.formats.protobuf.tests.made_messages import (
    made_contract,
    made_message,
    rewritten,
)
from tallyweir.schemas.formats.protobuf.tests.proto_contracts import contracts_of

_MESSAGES = 8
_OWN: dict[str, Callable[[Any], object]] = {
    "google.protobuf.Duration": lambda value: ("interval", value.ToTimedelta()),
    "google.protobuf.Timestamp": lambda value: value.ToMicroseconds(),
}


def official(message: Any, field: FieldDescriptor) -> object:  # noqa: ANN401
    """Return what the official library makes of a field, as a column has it."""
    if can_lack(field) and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.enum_type is not None and not field.is_repeated:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    name = field.message_type.full_name if field.message_type else ""
    if not field.is_repeated and not name:
        return value
    if not field.is_repeated and name in _OWN:
        return _OWN[name](value)
    if name.endswith("Value") and name.count(".") == 2 and hasattr(value, "value"):
        return value.value
    written = json_format.MessageToDict(
        message, always_print_fields_with_no_presence=True
    )
    return ("json", written[field.json_name])


def same(one: object, other: object) -> bool:
    """Tell whether a column's value is the official one."""
    if isinstance(other, tuple) and other[0] == "interval":
        assert isinstance(one, str)
        texts = one.removeprefix("PT").replace("H", "M").removesuffix("S").split("M")
        seconds = sum(
            Decimal(text) * 60**place for place, text in enumerate(reversed(texts))
        )
        return bool(seconds * 10**6 == other[1] // dt.timedelta(microseconds=1))
    if isinstance(other, tuple):
        return isinstance(one, str) and same_json(json.loads(one), other[1])
    if isinstance(other, float):
        assert isinstance(one, float)
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other


def same_json(one: object, other: object) -> bool:
    """Compare JSON, where a float and the nearest double may stand for each other."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same_json(one[key], other[key]) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def check_type(seed: int) -> int:
    """Check messages of one type; return their number."""
    source = Random(seed)
    contract = made_contract(source)
    descriptor = message_of(contract.text)
    codec = compile_codec(contract.text)
    payloads: list[bytes | None] = [None, b""]
    for _ in range(_MESSAGES):
        message = made_message(source, contract)
        payload = message.SerializePartialToString()
        assert (not first_unset(message)) == message.IsInitialized(), seed
        if not message.IsInitialized():
            continue
        event = codec.read(payload)
        for field, value in zip(codec.columns, event.values, strict=True):
            told = official(message, field)
            assert same(value, told), (seed, field.name, value, told)
        other = rewritten(source, descriptor, payload)
        assert codec.read(other).canonical == event.canonical, (seed, payload, other)
        changed = made_message(source, contract)
        if changed.IsInitialized() and changed != message:
            differs = codec.read(
                rewritten(source, descriptor, changed.SerializeToString())
            )
            is_same = differs.canonical == event.canonical
            assert not is_same or str(changed) == str(message), (seed, payload)
        again = codec.read(event.canonical)
        assert again.canonical == event.canonical, (seed, payload)
        check_record(contract, event, payload)
        payloads += [payload, other, damaged(source, payload), other[:-1]]
    check_batch(contract, payloads)
    return len(payloads)


def check_record(contract: Contract, event: MessageEvent, payload: bytes) -> None:
    """Check that a record is written as what was read."""
    codec = compile_codec(contract.text)
    record = decode(payload, {1: contract})
    back = codec.read(encode(contract, record))
    for one, other in zip(back.values, event.values, strict=True):
        assert one == other or one != one, (one, other)  # noqa: PLR0124 - NaN


def damaged(source: Random, payload: bytes) -> bytes:
    """Change, remove or add a few bytes."""
    changed = bytearray(payload or b"x")
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(changed))
        way = source.randrange(4)
        if way == 0:
            changed[at] ^= 1 << source.randrange(8)
        elif way == 1:
            changed[at:at] = source.randbytes(2)
        elif way == 2 and len(changed) > 1:
            del changed[at]
        else:
            changed += changed[at : at + 9]
    return bytes(changed)


def check_batch(contract: Contract, payloads: list[bytes | None]) -> None:
    """Check that a batch is what its payloads are one by one."""
    codec = compile_codec(contract.text)
    names = [one.name for one in codec.columns]
    whole = pa.array([b"?", *payloads], pa.binary()).slice(1)
    decoded = ProtobufDecoder(contracts_of(contract), names).decode(whole)
    for row, payload in enumerate(payloads):
        try:
            event = codec.read(payload)
        except DecodeError:
            event = None
        assert decoded.is_event[row] == (event is not None)
        assert decoded.canonical is not None
        if event is None or payload is None:
            assert decoded.canonical[row].as_py() is None
            continue
        codec.message.FromString(payload)
        assert decoded.canonical[row].as_py() == event.canonical
        for name, value in zip(names, event.values, strict=True):
            column = decoded.columns[name]
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            told = column[row].as_py()
            is_same = told == value or (isinstance(value, float) and value != value)  # noqa: PLR0124
            assert is_same or Decimal(told) == value, (name, told, value)


def test_messages_mean_what_the_official_library_says() -> None:
    """Of any type, in any order of their fields, whole or damaged."""
    seed = Random().randrange(1 << 32)
    print(f"seeds from {seed}")  # noqa: T201
    assert sum(check_type(one) for one in range(seed, seed + 60)) > 0


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_an_event_or_a_dead_letter(seed: int) -> None:
    """No bytes raise anything but the one error, and what is read is what is there."""
    source = Random(seed)
    contract = made_contract(source)
    codec = compile_codec(contract.text)
    for _ in range(300):
        payload = source.randbytes(source.randrange(1, 40))
        try:
            codec.read(payload)
        except DecodeError:
            continue
        try:
            codec.message.FromString(payload)
        except ParserError:  # pragma: no cover
            pytest.fail(f"{payload!r} was read")


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        check_type(number)
