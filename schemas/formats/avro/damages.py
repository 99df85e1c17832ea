"""Ways to break a payload, as broken producers and wires do."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from tallyweir.schemas.formats.avro.wire_format import HEADER_BYTES, frame
from tallyweir.schemas.formats.format import Damage

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract

_GARBAGE_BYTES = 16


def _truncated(payload: bytes, _: Contract, source: Random) -> bytes:
    return payload[: source.randrange(HEADER_BYTES, len(payload))]


def _bad_magic(payload: bytes, _: Contract, source: Random) -> bytes:
    return bytes([source.randint(1, 255)]) + payload[1:]


def _unknown_schema(payload: bytes, contract: Contract, source: Random) -> bytes:
    other = (contract.schema_id + source.randint(1, 1 << 20)) % (1 << 31)
    return frame(other, payload[HEADER_BYTES:])


def _trailing_bytes(payload: bytes, _: Contract, source: Random) -> bytes:
    return payload + source.randbytes(source.randint(1, _GARBAGE_BYTES))


def _random_bytes(_: bytes, contract: Contract, source: Random) -> bytes:
    known = {contract.schema_id: contract}
    while True:
        size = source.randint(1, 4 * _GARBAGE_BYTES)
        payload = frame(contract.schema_id, source.randbytes(size))
        if contract.format.diagnose(payload, known) is not None:
            return payload


DAMAGES: Mapping[str, Damage] = {
    "truncated": _truncated,
    "bad_magic": _bad_magic,
    "unknown_schema": _unknown_schema,
    "trailing_bytes": _trailing_bytes,
    "random_bytes": _random_bytes,
}
