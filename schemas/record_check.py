"""Check a record against its contract before it is written.

An encoder writes any value that it gets: 1.7 in an int loses its fraction, 2**40 in an
int makes bytes that no reader accepts, and a naive datetime is taken for local time.
This module refuses all of these, so that every written record can be read back
unchanged.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Callable
from decimal import Decimal

from tallyweir.schemas.schema_tree import (
    INT,
    NANOS_PER_MICRO,
    NUMBER_BOUNDS,
    Enumeration,
    Fixed,
    Mapping,
    Nullable,
    Primitive,
    Record,
    SchemaNode,
    Sequence,
    Union,
    describe,
)

Check = Callable[[object], None]
"""Returns when the value fits; raises ``MisfitError`` when not."""

FLOAT_MAX = 3.4028234663852886e38


_MICROS_PER_MILLI = 1_000
_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<years>[0-9]{1,9})Y)?(?:(?P<months>[0-9]{1,10})M)?"
    r"(?:(?P<weeks>[0-9]{1,9})W)?(?:(?P<days>[0-9]{1,10})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,4})H)?(?:(?P<minutes>[0-9]{1,6})M)?"
    r"(?:(?P<seconds>[0-9]{1,7})(?:\.(?P<millis>[0-9]{1,3}))?S)?)?"
)


class MisfitError(Exception):
    """A value does not fit its field."""


def compile_check(node: SchemaNode, at: str = "") -> Check:
    """Build the check of a type; ``at`` is the field's path in messages."""
    match node:
        case Record():
            return _check_record(node, at)
        case Nullable():
            return _check_nullable(node, at)
        case Union():
            return _check_union(node, at)
        case Sequence():
            return _check_sequence(node, at)
        case Mapping():
            return _check_mapping(node, at)
        case _:
            return _check_scalar(node, at)


def duration_bytes(text: str) -> bytes:
    """Write an ISO 8601 duration, ``P1M2DT3.004S``, as the twelve bytes of Avro's.

    Raises:
        ValueError: It is none, or does not fit an ``interval`` or Avro's type.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    parts = {name: int(digits or 0) for name, digits in found.groupdict().items()}
    millis = int((found["millis"] or "").ljust(3, "0"))
    seconds = (parts["hours"] * 60 + parts["minutes"]) * 60 + parts["seconds"]
    months = parts["years"] * 12 + parts["months"]
    days = parts["weeks"] * 7 + parts["days"]
    if months > INT[1] or days > INT[1]:
        raise ValueError(text)
    try:
        counts = (months, days, seconds * 1_000 + millis)
        return b"".join(count.to_bytes(4, "little") for count in counts)
    except OverflowError as exc:
        raise ValueError(text) from exc


def _misfit(at: str, node: SchemaNode, value: object) -> MisfitError:
    shown = repr(value)
    if len(shown) > 60:  # noqa: PLR2004 (keeps the message on one line)
        shown = f"{shown[:60]}..."
    return MisfitError(f"field {at}: expected {describe(node)}, got {shown}")


def _check_record(node: Record, at: str) -> Check:
    prefix = f"{at}." if at else ""
    checks = tuple(
        (
            field.name,
            compile_check(field.node, f"{prefix}{field.name}"),
            field.has_default,
        )
        for field in node.fields
    )
    known = {field.name for field in node.fields}

    def check(value: object) -> None:
        if not isinstance(value, dict):
            raise _misfit(at or "(all)", node, value)
        present = 0
        for name, check_field, may_lack in checks:
            if name in value:
                present += 1
                check_field(value[name])
            elif not may_lack:
                raise MisfitError(f"field {prefix}{name}: missing, has no default")
        if present != len(value):
            extra = sorted(map(str, value.keys() - known))
            raise MisfitError(f"field {prefix}{extra[0]}: not in the contract")

    return check


def _check_nullable(node: Nullable, at: str) -> Check:
    check_item = compile_check(node.item, at)

    def check(value: object) -> None:
        if value is not None:
            check_item(value)

    return check


def _check_union(node: Union, at: str) -> Check:
    checks = {
        name: compile_check(branch, f"{at}.{name}")
        for name, branch in zip(node.names, node.branches, strict=True)
        if branch is not None
    }

    def check(value: object) -> None:
        if value is None and None in node.branches:
            return
        if not isinstance(value, dict) or len(value) != 1:
            raise _misfit(at, node, value)
        ((name, one),) = value.items()
        if name not in checks:
            known = ", ".join(checks)
            raise MisfitError(f"field {at}: {name!r:.60} is not one of {known}")
        checks[name](one)

    return check


def _check_sequence(node: Sequence, at: str) -> Check:
    check_item = compile_check(node.item, f"{at}[]")

    def check(value: object) -> None:
        if not isinstance(value, list | tuple):
            raise _misfit(at, node, value)
        for item in value:
            check_item(item)

    return check


def _check_mapping(node: Mapping, at: str) -> Check:
    check_item = compile_check(node.item, f"{at}{{}}")

    def check(value: object) -> None:
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise _misfit(at, node, value)
        for item in value.values():
            check_item(item)

    return check


def _check_scalar(node: Primitive | Fixed | Enumeration, at: str) -> Check:
    fits = _scalar_test(node)

    def check(value: object) -> None:
        if not fits(value):
            raise _misfit(at, node, value)

    return check


def _scalar_test(node: Primitive | Fixed | Enumeration) -> Callable[[object], bool]:
    if isinstance(node, Enumeration):
        symbols = frozenset(node.symbols)
        return lambda value: isinstance(value, str) and value in symbols
    if node.logical == "decimal":
        return _decimal_test(node.precision, node.scale)
    if isinstance(node, Fixed) and node.logical is None:
        size = node.size
        return lambda value: isinstance(value, bytes) and len(value) == size
    kind = node.logical or ("bytes" if isinstance(node, Fixed) else node.kind)
    if kind in NUMBER_BOUNDS:
        return _number_test(kind)
    return _PLAIN_TESTS[kind]


def _number_test(kind: str) -> Callable[[object], bool]:
    lowest, highest = NUMBER_BOUNDS[kind]
    is_other_form = _CALENDAR_TESTS.get(kind)

    step = NANOS_PER_MICRO if kind.endswith("-nanos") else 1

    def fits(value: object) -> bool:
        # In Python a bool is an int; as a number it is certainly a mistake.
        if type(value) is int:
            return lowest <= value <= highest and value % step == 0
        return is_other_form is not None and is_other_form(value)

    return fits


def _decimal_test(precision: int, scale: int) -> Callable[[object], bool]:
    limit = Decimal(10) ** (precision - scale)

    def fits(value: object) -> bool:
        if not isinstance(value, Decimal) or not value.is_finite():
            return False
        exponent = value.as_tuple().exponent
        return (
            isinstance(exponent, int)
            and -exponent <= scale
            and value.copy_abs() < limit
        )

    return fits


def _is_date(value: object) -> bool:
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _is_instant(value: object) -> bool:
    return isinstance(value, dt.datetime) and value.utcoffset() is not None


def _is_time(value: object) -> bool:
    return isinstance(value, dt.time) and value.tzinfo is None


def _in_millis(is_form: Callable[[object], bool]) -> Callable[[object], bool]:
    """Accept what is of that form and has nothing below a millisecond."""

    def fits(value: object) -> bool:
        return (
            is_form(value)
            and isinstance(value, dt.datetime | dt.time)
            and value.microsecond % _MICROS_PER_MILLI == 0
        )

    return fits


def _is_duration(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(duration_bytes(value))
    except ValueError:
        return False


def _is_local(value: object) -> bool:
    return isinstance(value, dt.datetime) and value.tzinfo is None


def _is_real(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 1 << 53)


def _is_single(value: object) -> bool:
    if not isinstance(value, float | int) or isinstance(value, bool):
        return False
    return not math.isfinite(value) or abs(value) <= FLOAT_MAX


def _is_uuid(value: object) -> bool:
    if isinstance(value, uuid.UUID):
        return True
    try:
        return isinstance(value, str) and bool(uuid.UUID(value))
    except ValueError:
        return False


_CALENDAR_TESTS: dict[str, Callable[[object], bool]] = {
    "date": _is_date,
    "timestamp-millis": _in_millis(_is_instant),
    "timestamp-micros": _is_instant,
    "local-timestamp-millis": _in_millis(_is_local),
    "local-timestamp-micros": _is_local,
    "timestamp-nanos": _is_instant,
    "local-timestamp-nanos": _is_local,
    "time-millis": _in_millis(_is_time),
    "time-micros": _is_time,
}
_PLAIN_TESTS: dict[str, Callable[[object], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    # The encoder reads the text.
    "interval": lambda value: isinstance(value, str),
    "numeric": lambda value: isinstance(value, str),
    "json": lambda value: isinstance(value, str),
    "bytes": lambda value: isinstance(value, bytes),
    "float": _is_single,
    "double": _is_real,
    "uuid": _is_uuid,
    "duration": _is_duration,
}
