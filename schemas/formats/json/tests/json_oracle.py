"""What a document holds, by Python's own ``json`` and ``decimal``: slow, but apart.

It knows the fields of ``made_documents`` only.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

_EXACT = Context(prec=5_000)
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,](\d{1,1000}))?(.*)", re.ASCII
)
_OFFSET = re.compile(r"[+-]\d\d(:?\d\d)?", re.ASCII)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
_TOP = 64
Json = object


class Float(str):
    """A number's token."""

    __slots__ = ()


def read_document(payload: bytes | None) -> dict[str, Json] | None:
    """Return a document's value, with ``Float`` for numbers; None if it is refused."""
    if not payload:
        return None
    try:
        text = payload.decode("utf-8")
        found = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError):
        return None
    is_fine = isinstance(found, dict) and _depth(found) <= _TOP and _is_clean(found)
    return found if is_fine else None


def oracle(payload: bytes | None) -> dict[str, object] | None:
    """Return the record of a payload; None if it is no event."""
    document = read_document(payload)
    if document is None:
        return None
    record: dict[str, object] = {}
    try:
        for path, (read, is_required) in _READERS.items():
            value: Json = document
            for name in path.split("."):
                if value is None:
                    break
                if not isinstance(value, dict):
                    return None
                value = value.get(name)
            found = None if value is None else read(value)
            if found is None and is_required:
                return None
            record[path.replace(".", "_")] = found
    except (ValueError, TypeError, ArithmeticError, binascii.Error):
        return None
    return record


def same_value(value: Json) -> object:
    """Return what equal JSON values share."""
    if isinstance(value, dict):
        return {"{": {name: same_value(one) for name, one in value.items()}}
    if isinstance(value, list):
        return [same_value(one) for one in value]
    if isinstance(value, Float):
        return ("number", Fraction(value))
    return (type(value).__name__, value)


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(pairs)
    return found


def _number(token: str) -> Float:
    exponent = token.lower().partition("e")[2]
    if len(token) > 1_000 or abs(int(exponent or 0)) > 1_000:
        raise ValueError(token)
    return Float(token)


def _refuse(token: str) -> Float:
    raise ValueError(token)


def _depth(value: Json) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _is_clean(value: Json) -> bool:
    if isinstance(value, dict):
        return all(_is_clean(one) for pair in value.items() for one in pair)
    if isinstance(value, list):
        return all(map(_is_clean, value))
    return not isinstance(value, str) or (
        "\0" not in value and not any("\ud800" <= one <= "\udfff" for one in value)
    )


def _token(value: Json) -> Decimal:
    if not isinstance(value, Float):
        raise TypeError(value)
    return Decimal(value)


def _text(value: Json) -> str:
    if not isinstance(value, str) or isinstance(value, Float):
        raise TypeError(value)
    return value


def _boolean(value: Json) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _whole(bits: int) -> Callable[[Json], int]:
    def read(value: Json) -> int:
        found = Fraction(_token(value))
        if found.denominator != 1 or not -(1 << bits) <= found < 1 << bits:
            raise ValueError(value)
        return int(found)

    return read


def _numeric(precision: int, scale: int) -> Callable[[Json], Decimal]:
    def read(value: Json) -> Decimal:
        found = _token(value)
        rounded = found.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
        if rounded != found or abs(rounded) >= Decimal(10) ** (precision - scale):
            raise ValueError(value)
        return rounded

    return read


def _double(value: Json) -> float:
    _token(value)
    found = float(str(value))
    if math.isinf(found):
        raise ValueError(value)
    return found


def _single(value: Json) -> float:
    exact = Fraction(_token(value))
    if abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103:
        raise ValueError(value)
    near = np.float32(min(abs(_double(value)), 3.4028234663852886e38))
    around = [
        near,
        np.nextafter(near, np.float32(0)),
        np.nextafter(near, np.float32(np.inf)),
    ]
    usable = [one for one in around if np.isfinite(one)]

    def rank(one: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(one)) - abs(exact)), int(one.view(np.uint32)) & 1

    return math.copysign(float(min(usable, key=rank)), exact)


def _moment(*, is_local: bool, is_truncated: bool) -> Callable[[Json], dt.datetime]:
    def read(value: Json) -> dt.datetime:
        found = _MOMENT.fullmatch(_text(value))
        if found is None or (found[4] and not found[3]):
            raise ValueError(value)
        day, clock, seconds, digits, offset = found.groups()
        digits = digits or ""
        if digits[6:].strip("0") and not is_truncated:
            raise ValueError(value)
        if (offset == "") != is_local:
            raise ValueError(value)
        whole = f"{day}T{clock}{seconds or ':00'}"
        if clock.startswith("24"):
            raise ValueError(value)
        moment = dt.datetime.fromisoformat(whole)
        moment = moment.replace(microsecond=int(digits[:6].ljust(6, "0")))
        if is_local:
            return moment
        if offset in {"Z", "z"}:
            return moment.replace(tzinfo=dt.UTC)
        if (
            _OFFSET.fullmatch(offset) is None
            or int(offset.replace(":", "")[3:] or 0) > 59
        ):
            raise ValueError(value)
        zone = dt.datetime.strptime(offset.ljust(5, "0"), "%z").tzinfo
        return moment.replace(tzinfo=zone).astimezone(dt.UTC)

    return read


def _count(
    per_second: int, *, is_truncated: bool, zone: dt.tzinfo | None
) -> Callable[[Json], dt.datetime]:
    def read(value: Json) -> dt.datetime:
        micros = Fraction(_token(value)) * 1_000_000 / per_second
        if micros.denominator != 1 and not is_truncated:
            raise ValueError(value)
        return (_EPOCH + dt.timedelta(microseconds=math.floor(micros))).replace(
            tzinfo=zone
        )

    return read


def _day(value: Json) -> dt.date:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", _text(value), re.ASCII) is None:
        raise ValueError(value)
    return dt.date.fromisoformat(str(value))


def _from_text(read: Callable[[Json], object]) -> Callable[[Json], object]:
    shape = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)

    def carried(value: Json) -> object:
        if isinstance(value, Float) or shape.fullmatch(_text(value)) is None:
            raise ValueError(value)
        return read(_number(str(value)))

    return carried


def _unscaled(value: Json) -> Decimal:
    raw = _bytes(value)
    if not raw:
        raise ValueError(value)
    bits = int.from_bytes(raw, "big")
    found = bits - (1 << 8 * len(raw)) if raw[0] >> 7 else bits
    if abs(found) > 999_999_999:
        raise ValueError(value)
    return Decimal(found).scaleb(-2, _EXACT)


def _days(value: Json) -> dt.date:
    return _EPOCH.date() + dt.timedelta(days=_whole(40)(value))


def _uuid(value: Json) -> str:
    shape = "-".join(f"[0-9a-f]{{{size}}}" for size in (8, 4, 4, 4, 12))
    if re.fullmatch(shape, _text(value).lower(), re.ASCII) is None:
        raise ValueError(value)
    return str(value).lower()


def _bytes(value: Json) -> bytes:
    found = base64.b64decode(_text(value), validate=True)
    if base64.b64encode(found) != str(value).encode():
        raise ValueError(value)
    return found


def _same(value: Json) -> object:
    return same_value(value)


_READERS: dict[str, tuple[Callable[[Json], object], bool]] = {
    "order_id": (_text, True),
    "customer.id": (_whole(63), False),
    "customer.address.city": (_text, False),
    "amount": (_numeric(12, 2), True),
    "wide": (_numeric(38, 20), False),
    "quantity": (_whole(31), False),
    "small": (_whole(15), False),
    "placed_at": (_moment(is_local=False, is_truncated=False), False),
    "seen_ms": (_count(1_000, is_truncated=False, zone=dt.UTC), False),
    "seen_ns": (_count(10**9, is_truncated=True, zone=None), False),
    "local": (_moment(is_local=True, is_truncated=True), False),
    "day": (_day, False),
    "is_gift": (_boolean, False),
    "score": (_double, False),
    "ratio": (_single, False),
    "ref": (_uuid, False),
    "raw": (_bytes, False),
    "tags": (_same, False),
    "weight": (_token, False),
    "price": (_from_text(_numeric(10, 3)), False),
    "units": (_from_text(_whole(63)), False),
    "unscaled": (_unscaled, False),
    "born": (_days, False),
}
