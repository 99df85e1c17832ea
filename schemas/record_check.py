"""Check a record against its contract before it is written.

An encoder writes any value that it gets: 1.7 in an int loses its fraction, 2**40 in an
int makes bytes that no reader accepts, and a naive datetime is taken for local time.
This module refuses all of these, so that every written record can be read back
unchanged.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable
from decimal import Decimal

from tallyweir.schemas.schema_tree import (
    NUMBER_BOUNDS,
    Enumeration,
    Fixed,
    Mapping,
    Nullable,
    Primitive,
    Record,
    SchemaNode,
    Sequence,
    describe,
)

Check = Callable[[object], None]
"""Returns when the value fits; raises ``MisfitError`` when not."""

FLOAT_MAX = 3.4028234663852886e38


class MisfitError(Exception):
    """A value does not fit its field."""


def compile_check(node: SchemaNode, at: str = "") -> Check:
    """Build the check of a type; ``at`` is the field's path in messages."""
    match node:
        case Record():
            return _check_record(node, at)
        case Nullable():
            return _check_nullable(node, at)
        case Sequence():
            return _check_sequence(node, at)
        case Mapping():
            return _check_mapping(node, at)
        case _:
            return _check_scalar(node, at)


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
    if isinstance(node, Fixed):
        size = node.size
        return lambda value: isinstance(value, bytes) and len(value) == size
    kind = node.logical or node.kind
    if kind in NUMBER_BOUNDS:
        return _number_test(kind)
    return _PLAIN_TESTS[kind]


def _number_test(kind: str) -> Callable[[object], bool]:
    lowest, highest = NUMBER_BOUNDS[kind]
    is_other_form = _CALENDAR_TESTS.get(kind)

    def fits(value: object) -> bool:
        # In Python a bool is an int; as a number it is certainly a mistake.
        if type(value) is int:
            return lowest <= value <= highest
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
    "timestamp-millis": _is_instant,
    "timestamp-micros": _is_instant,
    "local-timestamp-millis": _is_local,
    "local-timestamp-micros": _is_local,
}
_PLAIN_TESTS: dict[str, Callable[[object], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    # The encoder reads the text.
    "json": lambda value: isinstance(value, str),
    "bytes": lambda value: isinstance(value, bytes),
    "float": _is_single,
    "double": _is_real,
    "uuid": _is_uuid,
}
