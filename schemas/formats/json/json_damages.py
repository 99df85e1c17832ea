"""Ways to break a document, as broken producers and wires do."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from tallyweir.schemas.formats.format import Damage

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract

_GARBAGE_BYTES = 16
_DEPTH = 1_000
_BOM = b"\xef\xbb\xbf"


def _truncated(payload: bytes, _: Contract, source: Random) -> bytes:
    return payload[: source.randrange(1, len(payload))]


def _trailing_bytes(payload: bytes, _: Contract, source: Random) -> bytes:
    return payload + source.choice([payload, b"}", b"null", b",", b"\x00"])


def _duplicate_key(payload: bytes, _: Contract, source: Random) -> bytes:
    name = b'"poison%d"' % source.randrange(1_000)
    return _with_member(payload, b"%s:1,%s:2" % (name, name))


def _wrong_type(_: bytes, __: Contract, source: Random) -> bytes:
    return source.choice([b"[]", b"1", b'"text"', b"null", b"[{}]"])


def _not_a_number(payload: bytes, _: Contract, source: Random) -> bytes:
    token = source.choice([b"NaN", b"Infinity", b"-Infinity"])
    return _with_member(payload, b'"poison":%s' % token)


def _lone_surrogate(payload: bytes, _: Contract, source: Random) -> bytes:
    half = source.choice([b"\\ud83d", b"\\udcca", b"\\udcca\\ud83d"])
    return _with_member(payload, b'"poison":"%s"' % half)


def _not_utf8(payload: bytes, _: Contract, source: Random) -> bytes:
    raw = source.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
    return _with_member(payload, b'"poison":"%s"' % raw)


def _number_bomb(payload: bytes, _: Contract, source: Random) -> bytes:
    token = source.choice([b"1e999999999", b"9" * 2_000])
    return _with_member(payload, b'"poison":%s' % token)


def _depth_bomb(payload: bytes, _: Contract, source: Random) -> bytes:
    deep = b"[" * (_DEPTH + source.randrange(_DEPTH))
    return _with_member(payload, b'"poison":%s%s' % (deep, b"]" * len(deep)))


def _byte_order_mark(payload: bytes, _: Contract, source: Random) -> bytes:
    return _BOM + payload + b" " * source.randrange(_GARBAGE_BYTES)


def _random_bytes(_: bytes, contract: Contract, source: Random) -> bytes:
    known = {contract.schema_id: contract}
    while True:
        payload = source.randbytes(source.randint(1, 4 * _GARBAGE_BYTES))
        if contract.format.diagnose(payload, known) is not None:
            return payload


def _with_member(payload: bytes, member: bytes) -> bytes:
    """Put a member before all others; ``payload`` is an object without spaces."""
    comma = b"" if payload == b"{}" else b","
    return b"{" + member + comma + payload[1:]


DAMAGES: Mapping[str, Damage] = {
    "truncated": _truncated,
    "trailing_bytes": _trailing_bytes,
    "duplicate_key": _duplicate_key,
    "wrong_type": _wrong_type,
    "not_a_number": _not_a_number,
    "lone_surrogate": _lone_surrogate,
    "not_utf8": _not_utf8,
    "number_bomb": _number_bomb,
    "depth_bomb": _depth_bomb,
    "byte_order_mark": _byte_order_mark,
    "random_bytes": _random_bytes,
}
