"""The values of columns, out of messages and into them."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from operator import attrgetter
from typing import Any

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from tallyweir.schemas.errors import ReasonCode
from tallyweir.schemas.formats.protobuf.json_form import (
    compile_write,
    enum_names,
    read_text,
    write_text,
)
from tallyweir.schemas.formats.protobuf.message_fields import (
    DURATION,
    TIMESTAMP,
    WRAPPERS,
    can_lack,
    node_of,
)
from tallyweir.schemas.formats.protobuf.wire_walk import MessageFault
from tallyweir.schemas.record_check import MisfitError
from tallyweir.schemas.schema_tree import NUMBER_BOUNDS, item_of

Get = Callable[[Any], object]
"""Returns a column's value of a message, an instant in microseconds since 1970.

It raises ``MessageFault`` if the field holds no value of the column's type.
"""

Put = Callable[[Any, Any], None]
"""Puts a column's value, which ``record_check`` accepts, into a message.

It raises ``MisfitError`` if a message cannot hold the value.
"""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICRO = dt.timedelta(microseconds=1)
_MICROS_PER_SECOND = 1_000_000
_NANOS_PER_MICRO = 1_000
_NANOS_PER_SECOND = 1_000_000_000
_INT32_MAX = (1 << 31) - 1
#: Of ``google.protobuf.Duration``: about 10,000 years.
_DURATION_SECONDS_MAX = 315_576_000_000
_INTERVAL = re.compile(
    r"PT(?:(-?[0-9]{1,8})H)?(?:(-?[0-9]{1,10})M)?(?:(-?[0-9]{1,12}(?:\.[0-9]{1,6})?)S)?"
)


def compile_get(field: FieldDescriptor) -> Get:
    """Build the function that reads a field."""
    name = field.name
    read = _compile_read(field)

    def get(message: Any) -> object:  # noqa: ANN401 - its class is made at run time
        if not message.HasField(name):
            return None
        return read(message)

    return get if can_lack(field) else read


def is_plain(field: FieldDescriptor) -> bool:
    """Tell whether a message's attribute is the column's value as it is."""
    if field.is_repeated or field.message_type is not None or can_lack(field):
        return False
    if field.type != FieldDescriptor.TYPE_STRING:
        return field.enum_type is None
    # Only the texts of proto3 are surely checked by the parser.
    file = descriptor_pb2.FileDescriptorProto()
    field.file.CopyToProto(file)
    return bool(file.syntax == "proto3")


def compile_put(field: FieldDescriptor) -> Put:
    """Build the function that writes a field."""
    name = field.name
    if item_of(node_of(field)).logical == "json":  # type: ignore[union-attr]
        return _put_json(field)
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return lambda message, value: _put_instant(getattr(message, name), value)
        if field.message_type.full_name == DURATION:
            return lambda message, value: _put_interval(field, message, value)
        inner = field.message_type.fields_by_name["value"]
        convert = _compile_convert(inner)
        return lambda message, value: _put_wrapped(
            getattr(message, name), convert(value)
        )
    convert = _compile_convert(field)
    return lambda message, value: setattr(message, name, convert(value))


def as_record_value(field: FieldDescriptor) -> Callable[[Any], object] | None:
    """Return what makes of a column's value one that ``compile_put`` takes.

    Returns:
        None if it is one already.
    """
    node = item_of(node_of(field))
    match getattr(node, "logical", None):
        case "timestamp-micros":
            return lambda value: _EPOCH + value * _MICRO
        case "decimal":
            return Decimal
        case _:
            return None


def _compile_read(field: FieldDescriptor) -> Get:
    get = attrgetter(field.name)
    node = item_of(node_of(field))
    if getattr(node, "logical", None) == "json":
        write = compile_write(field)
        return lambda message: write_text(write(get(message)))
    if field.message_type is None:
        return _compile_scalar(field, get)
    if field.message_type.full_name == TIMESTAMP:
        return lambda message: _micros(get(message))
    if field.message_type.full_name == DURATION:
        return lambda message: _interval(get(message))
    assert field.message_type.full_name in WRAPPERS, field.full_name
    return attrgetter(f"{field.name}.value")


def _compile_scalar(field: FieldDescriptor, get: Callable[[Any], Any]) -> Get:
    if field.type == FieldDescriptor.TYPE_STRING:
        return lambda message: read_text(get(message))
    if field.enum_type is None:
        return get
    names = enum_names(field.enum_type)

    def get_name(message: Any) -> str:  # noqa: ANN401 - as above
        number = get(message)
        assert isinstance(number, int), "enums are numbers"
        return names.get(number) or str(number)

    return get_name


def _micros(instant: Any) -> int:  # noqa: ANN401 - as above
    seconds, nanos = int(instant.seconds), int(instant.nanos)
    if not 0 <= nanos < _NANOS_PER_SECOND:
        raise MessageFault(ReasonCode.OUT_OF_RANGE, f"nanos are {nanos}")
    found = _added(seconds, nanos)
    low, high = NUMBER_BOUNDS["timestamp-micros"]
    if not low <= found <= high:
        raise MessageFault(
            ReasonCode.OUT_OF_RANGE,
            f"{seconds} seconds are outside of the years 1 to 9999",
        )
    return found


def _added(seconds: int, nanos: int) -> int:
    micros, rest = divmod(nanos, _NANOS_PER_MICRO)
    if rest:
        raise MessageFault(
            ReasonCode.OUT_OF_RANGE,
            f"{nanos} nanos are no whole number of microseconds",
        )
    return seconds * _MICROS_PER_SECOND + micros


def _interval(duration: Any) -> str:  # noqa: ANN401 - as above
    """Write a duration as Postgres reads an interval: ``PT-1.5S``."""
    seconds, nanos = int(duration.seconds), int(duration.nanos)
    is_one = seconds * nanos >= 0 and abs(nanos) < _NANOS_PER_SECOND
    if not is_one or abs(seconds) > _DURATION_SECONDS_MAX:
        raise MessageFault(
            ReasonCode.OUT_OF_RANGE, f"no duration: {seconds} seconds, {nanos} nanos"
        )
    micros = _added(seconds, nanos)
    # Postgres reads many seconds with a fraction through a double.
    whole, rest = divmod(abs(micros), _MICROS_PER_SECOND)
    minutes, left = divmod(whole, 60)
    sign = "-" if micros < 0 else ""
    hours = f"{sign}{minutes // 60}H{sign}{minutes % 60}M" if minutes else ""
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"PT{hours}{sign}{left}{fraction}S"


def _put_interval(field: FieldDescriptor, message: Any, value: str) -> None:  # noqa: ANN401
    found = _INTERVAL.fullmatch(value)
    if found is None:
        raise MisfitError(f"field {field.name}: {value!r:.60} is not such as PT-1.5S")
    hours, minutes, seconds = (Decimal(one or 0) for one in found.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if abs(total) > _DURATION_SECONDS_MAX:
        raise _misfit(field, value)
    duration = getattr(message, field.name)
    duration.seconds = int(total)
    duration.nanos = int((total - int(total)) * _NANOS_PER_SECOND)
    duration.SetInParent()


def _put_instant(instant: Any, value: dt.datetime | int) -> None:  # noqa: ANN401
    micros = value if isinstance(value, int) else (value - _EPOCH) // _MICRO
    seconds, rest = divmod(micros, _MICROS_PER_SECOND)
    instant.seconds, instant.nanos = seconds, rest * _NANOS_PER_MICRO
    instant.SetInParent()


def _put_wrapped(wrapper: Any, value: object) -> None:  # noqa: ANN401 - as above
    wrapper.value = value
    wrapper.SetInParent()


def _compile_convert(field: FieldDescriptor) -> Callable[[Any], object]:
    if field.enum_type is not None:
        kind = field.enum_type
        return lambda value: _number(kind, value)
    node = item_of(node_of(field))
    if getattr(node, "logical", None) != "decimal":
        return _within(field)

    def convert(value: Decimal) -> int:
        if value < 0 or value >= 1 << 64:
            raise _misfit(field, value)
        return int(value)

    return convert


def _within(field: FieldDescriptor) -> Callable[[Any], object]:
    """Refuse what a column of the field's type holds, but the field does not."""
    if field.cpp_type != FieldDescriptor.CPPTYPE_UINT32:
        return lambda value: value

    def convert(value: int) -> int:
        if not 0 <= value < 1 << 32:
            raise _misfit(field, value)
        return value

    return convert


def _number(kind: EnumDescriptor, value: str) -> int:
    found = kind.values_by_name.get(value)
    if found is not None:
        return int(found.number)
    try:
        number = int(value)
    except ValueError:
        number = None
    if (
        number is None
        or kind.is_closed
        or str(number) != value
        or not -_INT32_MAX - 1 <= number <= _INT32_MAX
        or number in kind.values_by_number
    ):
        known = ", ".join(one.name for one in kind.values)
        raise MisfitError(f"{value!r:.60} is not one of {known:.200}")
    return number


def _put_json(field: FieldDescriptor) -> Put:
    name = field.json_name

    def put(message: Any, value: str) -> None:  # noqa: ANN401 - as above
        try:
            parsed = json.loads(value, object_pairs_hook=_distinct)
            json_format.ParseDict({name: parsed}, message)
        except (ValueError, RecursionError, json_format.ParseError) as exc:
            raise MisfitError(f"field {field.name}: {exc!s:.200}") from exc

    return put


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a name twice")
    return members


def _misfit(field: FieldDescriptor, value: object) -> MisfitError:
    return MisfitError(f"field {field.name}: {value} is not within its type")
