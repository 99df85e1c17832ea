"""Ways to break a payload, for ``emit --poison``; each makes one that is no event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from tallyweir.schemas.formats.format import Damage

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract

_GARBAGE_BYTES = 64


def _until_broken(damage: Callable[[bytes, Random], bytes]) -> Damage:
    """Repeat a damage until the payload is no event: what is left may be one."""

    def broken(payload: bytes, contract: Contract, source: Random) -> bytes:
        known = {contract.schema_id: contract}
        while True:
            damaged = damage(payload, source)
            if contract.format.diagnose(damaged, known) is not None:
                return damaged
            # Of an empty message, say, no part is broken.
            payload += source.randbytes(1)

    return broken


def _truncated(payload: bytes, source: Random) -> bytes:
    return payload[: source.randrange(len(payload))] if payload else payload


def _trailing_bytes(payload: bytes, source: Random) -> bytes:
    return payload + source.randbytes(source.randint(1, _GARBAGE_BYTES))


def _random_bytes(_: bytes, source: Random) -> bytes:
    return source.randbytes(source.randint(1, _GARBAGE_BYTES))


def _framed(payload: bytes, source: Random) -> bytes:
    return b"\0" + source.randbytes(4) + b"\0" + payload


DAMAGES: Mapping[str, Damage] = {
    "truncated": _until_broken(_truncated),
    "trailing_bytes": _until_broken(_trailing_bytes),
    "random_bytes": _until_broken(_random_bytes),
    "framed": _until_broken(_framed),
}
