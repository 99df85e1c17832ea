"""Values of JSON as values of a field's type, exact or not at all; and back.

A reader takes a value that ``json_text`` has read, and raises ``Fault`` if the type
does not hold exactly that value. Only floating-point types round: to the nearest value
that they have. A zero never has a sign.

A writer takes a Python value, and raises ``ValueError`` if the field's reader would not
read the same value back.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
import struct
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal

from tallyweir.schemas.errors import DecodeError, ReasonCode
from tallyweir.schemas.formats.json.json_canonical import (
    canonical_number,
    canonical_string,
    canonical_text,
    digits_of,
)
from tallyweir.schemas.formats.json.json_fields import FROM_BASE64, JsonField
from tallyweir.schemas.formats.json.json_text import (
    Fault,
    Number,
    Value,
    parse_document,
    read_value,
    show,
)
from tallyweir.schemas.formats.json.json_times import (
    EPOCH_DAY,
    UNIT_POWERS,
    TimeRangeError,
    UnreadableTimeError,
    datetime_of,
    micros_of,
    read_count,
    read_date,
    read_moment,
)
from tallyweir.schemas.schema_tree import NUMBER_BOUNDS

Reader = Callable[[Value], object]
"""Makes a Python value of a JSON value that is not null, or raises ``Fault``."""

Writer = Callable[[object], str]
"""Makes a JSON text of a Python value that is not None, or raises ``ValueError``."""

UUID_TEXT = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_INTEGERS = {"smallint": "smallint", "integer": "int", "bigint": "long"}
_WIDE = Context(prec=80)
#: A whole number with more digits is beyond every integer.
_INTEGER_DIGITS_MAX = 19
#: Up to here, every whole number is a double.
_DOUBLE_INTEGER_MAX = 1 << 53


def compile_reader(field: JsonField) -> Reader:
    """Build the reader of a field's values."""
    if field.carrier:
        return _carried_reader(field)
    match field.type:
        case "smallint" | "integer" | "bigint":
            return _integer_reader(field.type)
        case "numeric":
            return _decimal_reader(field) if field.precision else _read_number
        case "timestamp" | "timestamptz":
            return _count_reader(field) if field.unit else _moment_reader(field)
        case _:
            return _read_days if field.unit else _READERS[field.type]


def compile_writer(field: JsonField) -> Writer:
    """Build the writer of a field's values."""
    if field.carrier:
        return _carried_writer(field)
    match field.type:
        case "smallint" | "integer" | "bigint":
            bounds = NUMBER_BOUNDS[_INTEGERS[field.type]]
            return lambda value: _write_integer(value, bounds)
        case "numeric":
            if not field.precision:
                return _write_number
            return lambda value: _write_decimal(value, field)
        case "timestamp" | "timestamptz":
            return lambda value: _write_moment(value, field)
        case _:
            return _write_days if field.unit else _WRITERS[field.type]


def _wrong(expected: str, value: Value) -> Fault:
    return Fault(ReasonCode.WRONG_TYPE, f"expected {expected}, got {show(value)}")


def _outside(value: Value, why: str) -> Fault:
    return Fault(ReasonCode.OUT_OF_RANGE, f"{show(value)}: {why}")


def _read_text(value: Value) -> str:
    if not isinstance(value, str):
        raise _wrong("a text", value)
    return value


def _read_boolean(value: Value) -> bool:
    if not isinstance(value, bool):
        raise _wrong("true or false", value)
    return value


def _integer_reader(kind: str) -> Reader:
    lowest, highest = NUMBER_BOUNDS[_INTEGERS[kind]]

    def read(value: Value) -> int:
        if not isinstance(value, Number):
            raise _wrong(kind, value)
        number = digits_of(value.token)
        if number.exponent < 0:
            raise _outside(value, f"a {kind} has no fraction")
        if len(number.digits) + number.exponent > _INTEGER_DIGITS_MAX:
            raise _outside(value, f"beyond {kind}")
        found = int((number.digits or "0") + "0" * number.exponent)
        found = -found if number.is_negative else found
        if not lowest <= found <= highest:
            raise _outside(value, f"beyond {kind}")
        return found

    return read


def _read_number(value: Value) -> str:
    if not isinstance(value, Number):
        raise _wrong("a number", value)
    return canonical_number(value.token)


def _decimal_reader(field: JsonField) -> Reader:
    scale, whole_digits = field.scale, field.precision - field.scale

    def read(value: Value) -> Decimal:
        if not isinstance(value, Number):
            raise _wrong(field.shown_type, value)
        number = digits_of(value.token)
        if number.exponent < -scale:
            raise _outside(value, f"{field.shown_type} has {scale} digits of fraction")
        if len(number.digits) + number.exponent > whole_digits:
            raise _outside(value, f"beyond {field.shown_type}")
        digits = (number.digits or "0") + "0" * (number.exponent + scale)
        return Decimal((int(number.is_negative), tuple(map(int, digits)), -scale))

    return read


def _carried_reader(field: JsonField) -> Reader:
    """Build the reader of texts that hold a number, as JSON or Connect writes it."""
    if field.carrier == FROM_BASE64:
        return lambda value: _read_unscaled(value, field)
    read = compile_reader(replace(field, carrier=""))

    def carried(value: Value) -> object:
        number = _number_in(value)
        if number is None:
            raise _wrong(f"a text that holds a {field.type}", value)
        return read(number)

    return carried


def _number_in(text: object) -> Number | None:
    """Return the number that a text holds, as JSON writes it; None if it holds none."""
    if not isinstance(text, str):
        return None
    try:
        number, stop = read_value(text, 0, 0)
    except Fault:
        return None
    return number if isinstance(number, Number) and stop == len(text) else None


def _read_unscaled(value: Value, field: JsonField) -> Decimal:
    raw = _read_bytes(value)
    unscaled = int.from_bytes(raw, signed=True)
    # Python refuses to write much longer integers.
    if not raw or abs(unscaled) >= 10**field.precision:
        raise _outside(value, f"it holds no {field.shown_type}")
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -field.scale))


def _read_double(value: Value) -> float:
    if not isinstance(value, Number):
        raise _wrong("double precision", value)
    found = float(value.token)
    if math.isinf(found):
        raise _outside(value, "beyond double precision")
    return found + 0.0


def _read_single(value: Value) -> float:
    if not isinstance(value, Number):
        raise _wrong("real", value)
    try:
        return nearest_single(value.token) + 0.0
    except OverflowError:
        raise _outside(value, "beyond real") from None


def nearest_single(token: str) -> float:
    """Return the single-precision number that is nearest to a number's digits.

    Rounding twice, first to double precision, could miss it where the first step ends
    in the middle between two of them. So an inexact first step rounds to odd: then the
    second step knows on which side of the middle the digits lie.

    Raises:
        OverflowError: It would be infinite.
    """
    found = float(token)
    if math.isinf(found):
        raise OverflowError(token)
    exact, double = Decimal(token), Decimal(found)
    if exact != double:
        toward_zero = found
        if exact.copy_abs() < double.copy_abs():
            toward_zero = math.nextafter(found, 0.0)
        (bits,) = struct.unpack("<Q", struct.pack("<d", toward_zero))
        (found,) = struct.unpack("<d", struct.pack("<Q", bits | 1))
    single: float = struct.unpack("<f", struct.pack("<f", found))[0]
    return single


def _read_date(value: Value) -> dt.date:
    try:
        return read_date(_read_text(value))
    except ValueError as exc:
        raise _no_time(value, exc) from None


def _read_days(value: Value) -> dt.date:
    if not isinstance(value, Number):
        raise _wrong("a number of days since 1970", value)
    days = _read_day_count(value)
    assert isinstance(days, int), "it reads integers"
    try:
        return EPOCH_DAY + dt.timedelta(days=days)
    except OverflowError:
        raise _outside(value, "there is no such day") from None


def _moment_reader(field: JsonField) -> Reader:
    is_local = field.type == "timestamp"

    def read(value: Value) -> dt.datetime:
        try:
            micros = read_moment(
                _read_text(value),
                zone=field.zone,
                is_local=is_local,
                is_truncated=field.is_truncated,
            )
        except ValueError as exc:
            raise _no_time(value, exc) from None
        return datetime_of(micros, is_local=is_local)

    return read


def _count_reader(field: JsonField) -> Reader:
    is_local = field.type == "timestamp"

    def read(value: Value) -> dt.datetime:
        if not isinstance(value, Number):
            raise _wrong(f"a number of {field.unit} since 1970", value)
        try:
            micros = read_count(
                value.token, field.unit, is_truncated=field.is_truncated
            )
        except ValueError as exc:
            raise _no_time(value, exc) from None
        return datetime_of(micros, is_local=is_local)

    return read


def _no_time(value: Value, cause: ValueError) -> Fault:
    if isinstance(cause, UnreadableTimeError):
        return Fault(ReasonCode.WRONG_TYPE, f"{cause}, got {show(value)}")
    assert isinstance(cause, TimeRangeError), cause
    return _outside(value, str(cause))


def _read_uuid(value: Value) -> str:
    if not isinstance(value, str) or UUID_TEXT.fullmatch(value) is None:
        raise _wrong("a UUID", value)
    return value.lower()


def _read_bytes(value: Value) -> bytes:
    if isinstance(value, str):
        try:
            found = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _wrong("base64", value) from None
        # Spare bits of the last character must be zeros.
        if base64.b64encode(found).decode() == value:
            return found
    raise _wrong("base64", value)


_read_day_count = _integer_reader("integer")

_READERS: dict[str, Reader] = {
    "text": _read_text,
    "boolean": _read_boolean,
    "real": _read_single,
    "double precision": _read_double,
    "date": _read_date,
    "uuid": _read_uuid,
    "jsonb": canonical_text,
    "bytea": _read_bytes,
}


def _write_text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(value)
    value.encode()
    return canonical_string(value)


def _write_boolean(value: object) -> str:
    if not isinstance(value, bool):
        raise ValueError(value)  # noqa: TRY004 - callers catch one error
    return "true" if value else "false"


def _write_integer(value: object, bounds: tuple[int, int]) -> str:
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise ValueError(value)
    return str(value)


def _write_number(value: object) -> str:
    number = _number_in(value)
    if number is None:
        raise ValueError(value)
    return canonical_number(number.token)


def _write_decimal(value: object, field: JsonField) -> str:
    if not isinstance(value, Decimal) or not value.is_finite():
        raise ValueError(value)
    if abs(value.adjusted()) > field.precision and value:
        raise ValueError(value)
    token = canonical_number(str(value)) if value else "0"
    try:
        compile_reader(field)(Number(token))
    except Fault as exc:
        raise ValueError(value) from exc
    return token


def _carried_writer(field: JsonField) -> Writer:
    plain = replace(field, carrier="")
    write, read = compile_writer(plain), compile_reader(plain)
    if field.carrier != FROM_BASE64:
        return lambda value: f'"{write(value)}"'

    def write_unscaled(value: object) -> str:
        found = read(Number(write(value)))
        assert isinstance(found, Decimal), "base64 holds decimals"
        unscaled = int(found.scaleb(field.scale, _WIDE))
        # One bit is the sign.
        raw = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True)
        return f'"{base64.b64encode(raw).decode()}"'

    return write_unscaled


def _write_double(value: object) -> str:
    is_exact = type(value) is int and abs(value) <= _DOUBLE_INTEGER_MAX
    if not is_exact and not (isinstance(value, float) and math.isfinite(value)):
        raise ValueError(value)
    return canonical_number(repr(value))


def _write_single(value: object) -> str:
    token = _write_double(value)
    nearest_single(token)
    return token


def _as_date(value: object) -> dt.date:
    if type(value) is int:
        lowest, highest = NUMBER_BOUNDS["date"]
        if not lowest <= value <= highest:
            raise ValueError(value)
        value = EPOCH_DAY + dt.timedelta(days=value)
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise ValueError(value)  # noqa: TRY004 - as above
    return value


def _write_days(value: object) -> str:
    return str((_as_date(value) - EPOCH_DAY).days)


def _write_date(value: object) -> str:
    return f'"{_as_date(value).isoformat()}"'


def _write_moment(value: object, field: JsonField) -> str:
    is_local = field.type == "timestamp"
    if type(value) is int and field.unit:
        # It is the number itself; reading it tells whether the field holds it.
        read_count(str(value), field.unit, is_truncated=field.is_truncated)
        return str(value)
    if type(value) is int:
        value = datetime_of(value, is_local=is_local)
    if not isinstance(value, dt.datetime) or is_local != (value.utcoffset() is None):
        raise ValueError(value)
    if field.unit:
        digits = Decimal(micros_of(value)).scaleb(-UNIT_POWERS[field.unit])
        return canonical_number(f"{digits:f}")
    if not is_local:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return f'"{value.isoformat()}{"" if is_local else "Z"}"'


def _write_uuid(value: object) -> str:
    if isinstance(value, uuid.UUID):
        value = str(value)
    if not isinstance(value, str) or UUID_TEXT.fullmatch(value) is None:
        raise ValueError(value)
    return f'"{value.lower()}"'


def _write_bytes(value: object) -> str:
    if not isinstance(value, bytes):
        raise ValueError(value)  # noqa: TRY004 - as above
    return f'"{base64.b64encode(value).decode()}"'


def _write_json(value: object) -> str:
    """Write a JSON text into the document; null is no value of a field."""
    if not isinstance(value, str):
        raise ValueError(value)  # noqa: TRY004 - as above
    try:
        inner = parse_document(f'{{"":{value}}}'.encode())
    except DecodeError as exc:
        raise ValueError(value) from exc
    if list(inner) != [""] or inner[""] is None:
        raise ValueError(value)
    return canonical_text(inner[""])


_WRITERS: dict[str, Writer] = {
    "text": _write_text,
    "boolean": _write_boolean,
    "real": _write_single,
    "double precision": _write_double,
    "date": _write_date,
    "uuid": _write_uuid,
    "jsonb": _write_json,
    "bytea": _write_bytes,
}
