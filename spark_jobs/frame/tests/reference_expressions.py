"""Typed SQL expressions by chance, each with the exact value that it must have.

The values are computed by Python's whole numbers, fractions and IEEE 754 floating
point, and by no rule of Spark's but those that the manual gives: which type an operator
has, and that a null before another part leaves that part alone.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

Row = Mapping[str, Any]

DIGITS = 38
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_WHOLE = tuple(BITS)
_DIVISIONS = ("/", "%", "div")
#: Spark has room for so many of a whole quotient, as the manual says.
_QUOTIENT_DIGITS = 39
_EXACT = Context(prec=200)
_EPOCH_DAY = dt.date(1970, 1, 1)


class FailedError(Exception):
    """An expression has no value; the argument is a part of what is said of it."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type of Spark; digits and places of decimals only."""

    name: str
    precision: int = 0
    scale: int = 0

    @property
    def sql(self) -> str:
        """As a cast names it."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return self.name

    @property
    def is_whole(self) -> bool:
        """Whether it is one of the integers."""
        return self.name in _WHOLE

    @property
    def as_decimal(self) -> Type:
        """The decimals that hold all of its numbers."""
        digits = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
        return self if self.name == "decimal" else decimal(digits[self.name], 0)

    def holds(self, number: Fraction | int) -> bool:
        """Tell whether a number is in the range."""
        if self.name == "decimal":
            return bool(abs(number) < 10 ** (self.precision - self.scale))
        half = 1 << (BITS[self.name] - 1)
        return -half <= number < half


def decimal(precision: int, scale: int) -> Type:
    """Return a decimal type; Spark keeps places and gives digits before them up."""
    return Type("decimal", min(precision, DIGITS), min(scale, DIGITS))


BOOLEAN, STRING, DATE = Type("boolean"), Type("string"), Type("date")
INT, BIGINT, DOUBLE, FLOAT = Type("int"), Type("bigint"), Type("double"), Type("float")
TIMESTAMP = Type("timestamp")

COLUMNS: dict[str, Type] = {
    "t8": Type("tinyint"),
    "s16": Type("smallint"),
    "i": INT,
    "j": INT,
    "k": BIGINT,
    "l": BIGINT,
    "d5": decimal(5, 0),
    "money": decimal(10, 2),
    "d18": decimal(18, 6),
    "price": decimal(38, 10),
    "fine": decimal(38, 30),
    "unit": decimal(38, 38),
    "large": decimal(38, 0),
    "x": DOUBLE,
    "y": DOUBLE,
    "f": FLOAT,
    "g": FLOAT,
    "day": DATE,
    "at": TIMESTAMP,
    "word": STRING,
    "b": BOOLEAN,
}
_ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "boolean": pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL, its type, and what it gives for a row; nulls are None.

    Attributes:
        compute: Of a row; raises ``FailedError``.
        floats: The same of floating point arithmetic, which is looked at once, at its
            end: with whether it has left the finite numbers, and begun with them.
    """

    type: Type
    sql: str
    compute: Callable[[Row], Any]
    floats: Callable[[Row], tuple[float | None, bool, bool]] | None = None


def strict(
    type_: Type,
    sql: str,
    compute: Callable[..., Any],
    *parts: Expression,
    is_reversed: bool = False,
) -> Expression:
    """Return what is null, and asks no further, at the first part that is null.

    Divisions ask for the divisor first.
    """

    def of_row(row: Row) -> Any:  # noqa: ANN401 - of the expression's type
        values = _values(parts, lambda part: part.compute(row), is_reversed)
        return None if values is None else compute(*values)

    return Expression(type_, sql, of_row)


def _values(
    parts: Sequence[Expression],
    value_of: Callable[[Expression], Any],
    is_reversed: bool,  # noqa: FBT001 - of ``strict``
) -> list[Any] | None:
    values = []
    for part in reversed(parts) if is_reversed else parts:
        value = value_of(part)
        if value is None:
            return None
        values.append(value)
    return values[::-1] if is_reversed else values


def column(name: str) -> Expression:
    """Return a column."""
    return Expression(COLUMNS[name], name, lambda row: row[name])


def literal(type_: Type, sql: str, value: object) -> Expression:
    """Return a value, as it is written."""
    return Expression(type_, f"cast({sql} AS {type_.sql})", lambda _: value)


def float_of(number: Any, type_: Type) -> float:  # noqa: ANN401 - any number
    """Return the nearest floating point."""
    nearest = float(number)
    return nearest if type_ == DOUBLE else float(np.float32(nearest))


def _converted(value: Any, source: Type, to: Type) -> Any:  # noqa: ANN401 - any
    """Convert a value as a cast does; ``FailedError`` where there is none."""
    fails = FailedError("cannot make")
    if source == to:
        return value
    if source == STRING:
        return _read(value, to)
    if to == STRING:
        return ("true" if value else "false") if source == BOOLEAN else str(value)
    if to in (DOUBLE, FLOAT):
        return float_of(value, to)
    if source in (DOUBLE, FLOAT):
        if not math.isfinite(value):
            raise fails
        value = int(value)
    value = math.trunc(value) if to.is_whole else _rounded(Fraction(value), to.scale)
    if not to.holds(value):
        raise fails
    return value


def _read(text: str, to: Type) -> Any:  # noqa: ANN401 - of the type
    text = text.strip()
    if to.is_whole and re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        if to.holds(int(text)):
            return int(text)
    elif to.name == "decimal" and re.fullmatch(
        r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", text, re.ASCII
    ):
        number = _rounded(Fraction(text), to.scale)
        if to.holds(number):
            return number
    elif to == DATE and re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        try:
            return (dt.date.fromisoformat(text) - _EPOCH_DAY).days
        except ValueError:
            pass
    elif to == BOOLEAN and text in ("true", "no"):
        return text == "true"
    raise FailedError("cannot make")


def _rounded(number: Fraction, places: int) -> Fraction:
    """Round to places, halves away from zero."""
    unit = Fraction(10) ** places
    scaled = number * unit
    whole = math.floor(abs(scaled) + Fraction(1, 2))
    return Fraction(whole if scaled >= 0 else -whole) / unit


def cast(part: Expression, to: Type) -> Expression:
    """Return an explicit cast."""
    source = part.type
    if source in (FLOAT, DOUBLE) and to in (FLOAT, DOUBLE):
        sql = f"cast({part.sql} AS {to.sql})"
        return _float_tree(to, sql, lambda number: number, part)
    return strict(
        to,
        f"cast({part.sql} AS {to.sql})",
        lambda value: _converted(value, source, to),
        part,
    )


def implied(part: Expression, to: Type) -> Expression:
    """Return a part as Spark converts it without being asked."""
    if part.type == to:
        return part
    source = part.type
    return strict(to, part.sql, lambda value: _converted(value, source, to), part)


def _common(types: Sequence[Type]) -> Type:
    """Return the type that values of several are compared and chosen as."""
    if len(set(types)) == 1:
        return types[0]
    if DOUBLE in types or FLOAT in types:
        return DOUBLE
    if all(one.is_whole for one in types):
        return max(types, key=lambda one: BITS[one.name])
    decimals = [one.as_decimal for one in types]
    scale = max(one.scale for one in decimals)
    return decimal(max(one.precision - one.scale for one in decimals) + scale, scale)


def arithmetic(sign: str, left: Expression, right: Expression) -> Expression:
    """Return ``left sign right``; the sign is one of + - * / % div."""
    sql = f"({left.sql} {sign} {right.sql})"
    types = left.type, right.type
    if (
        DOUBLE in types
        or FLOAT in types
        or (sign == "/" and all(one.is_whole for one in types))
    ):
        return _floating(sign, sql, left, right)
    if all(one.is_whole for one in types):
        wide = BIGINT if sign == "div" else _common(types)
        return strict(
            wide,
            sql,
            lambda a, b: _fitting(_whole_result(sign, a, b), wide),
            left,
            right,
            is_reversed=sign in _DIVISIONS,
        )
    return _decimal(sign, sql, left, right)


def _whole_result(sign: str, a: int, b: int) -> int:
    if sign in ("div", "%"):
        if b == 0:
            raise FailedError("divides by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if sign == "div" else a - quotient * b
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def _fitting(value: Any, type_: Type) -> Any:  # noqa: ANN401 - a number
    if not type_.holds(value):
        raise FailedError("overflows")
    return value


def _decimal(sign: str, sql: str, left: Expression, right: Expression) -> Expression:
    one, other = left.type.as_decimal, right.type.as_decimal
    before = one.precision - one.scale, other.precision - other.scale
    scale = max(one.scale, other.scale)
    kind = {
        "+": decimal(max(before) + scale + 1, scale),
        "-": decimal(max(before) + scale + 1, scale),
        "*": decimal(one.precision + other.precision + 1, one.scale + other.scale),
        "%": decimal(min(before) + scale, scale),
        "/": _quotient_type(one, other),
        "div": BIGINT,
    }[sign]

    def compute(a: Fraction, b: Fraction) -> Fraction | int:
        a, b = Fraction(a), Fraction(b)
        if sign in ("/", "div", "%") and b == 0:
            raise FailedError("divides by zero")
        if sign == "/":
            return _fitting(_rounded(a / b, kind.scale), kind)  # type: ignore[no-any-return]
        if sign in ("div", "%"):
            quotient = math.trunc(a / b)
            if len(str(abs(quotient)).rstrip("0")) > _QUOTIENT_DIGITS:
                raise FailedError("overflows")
            rest = a - quotient * b
            return _fitting(quotient if sign == "div" else rest, kind)  # type: ignore[no-any-return]
        exact = {"+": a + b, "-": a - b, "*": a * b}[sign]
        return _fitting(exact, kind)  # type: ignore[no-any-return]

    return strict(kind, sql, compute, left, right, is_reversed=sign in _DIVISIONS)


def _quotient_type(one: Type, other: Type) -> Type:
    """Return what the manual says of a quotient's digits."""
    before = min(DIGITS, one.precision - one.scale + other.scale)
    places = min(DIGITS, max(6, one.scale + other.precision + 1))
    above = before + places - DIGITS
    if above > 0:
        places -= above // 2 + 1
        before = DIGITS - places
    return decimal(before + places, places)


def _floating(sign: str, sql: str, left: Expression, right: Expression) -> Expression:
    kind = FLOAT if left.type == right.type == FLOAT else DOUBLE
    return _float_tree(
        kind,
        sql,
        lambda a, b: _ieee(sign, a, b, kind),
        left,
        right,
        is_reversed=sign in _DIVISIONS,
    )


def _float_tree(
    kind: Type,
    sql: str,
    compute: Callable[..., float],
    *parts: Expression,
    is_reversed: bool = False,
) -> Expression:
    parts = tuple(_as_floating(part, kind) for part in parts)

    def floats(row: Row) -> tuple[float | None, bool, bool]:
        found: list[tuple[bool, bool]] = []

        def value_of(part: Expression) -> float | None:
            if part.floats is None:
                value = part.compute(row)
                found.append((False, value is None or math.isfinite(value)))
                return value  # type: ignore[no-any-return]
            value, has_left, begun = part.floats(row)
            found.append((has_left, begun))
            return value

        values = _values(parts, value_of, is_reversed)
        if values is None:
            return None, False, True
        result = compute(*values)
        left = not math.isfinite(result) and all(map(math.isfinite, values))
        return (
            result,
            left or any(one for one, _ in found),
            all(one for _, one in found),
        )

    def of_row(row: Row) -> float | None:
        value, left, begun = floats(row)
        if value is not None and left and begun:
            raise FailedError("is no finite number")
        return value

    return Expression(kind, sql, of_row, floats)


def _as_floating(part: Expression, kind: Type) -> Expression:
    if part.type == kind or part.floats is None:
        return implied(part, kind)
    inner = part.floats

    def floats(row: Row) -> tuple[float | None, bool, bool]:
        value, left, begun = inner(row)
        return None if value is None else float_of(value, kind), left, begun

    return Expression(kind, part.sql, part.compute, floats)


def _ieee(sign: str, a: float, b: float, kind: Type) -> float:
    if sign in ("/", "%") and b == 0:
        raise FailedError("divides by zero")
    if sign == "%":
        return math.fmod(a, b) if math.isfinite(a) else math.nan
    number = np.float64 if kind == DOUBLE else np.float32
    one, other = number(a), number(b)
    with np.errstate(all="ignore"):
        result = {
            "+": one + other,
            "-": one - other,
            "*": one * other,
            "/": one / other if other else math.nan,
        }[sign]
    return float(result)


def negated(part: Expression) -> Expression:
    """Return ``-part``."""
    sql, kind = f"(- {part.sql})", part.type
    if kind in (DOUBLE, FLOAT):
        return _float_tree(kind, sql, lambda a: -a, part)
    return strict(kind, sql, lambda a: _fitting(-a, kind), part)


def absolute(part: Expression) -> Expression:
    """Return ``abs(part)``."""
    sql, kind = f"abs({part.sql})", part.type
    if kind in (DOUBLE, FLOAT):
        return _float_tree(kind, sql, abs, part)
    return strict(kind, sql, lambda a: _fitting(abs(a), kind), part)


def whole_below(name: str, part: Expression) -> Expression:
    """Return ``floor(part)`` or ``ceil(part)``."""
    round_ = math.floor if name == "floor" else math.ceil
    kind = part.type
    if kind.name == "decimal":
        to = decimal(kind.precision - kind.scale + 1, 0)
        if kind.scale == 0:
            to = kind
        return strict(
            to, f"{name}({part.sql})", lambda a: _fitting(Fraction(round_(a)), to), part
        )

    def compute(number: float) -> int:
        if not math.isfinite(number) or not BIGINT.holds(round_(number)):
            raise FailedError("fails in")
        return int(round_(number))

    return strict(BIGINT, f"{name}({part.sql})", compute, part)


def _order(a: Any, b: Any) -> int:  # noqa: ANN401 - of one type
    """Compare: NaN is equal to itself, and greater than any number."""
    if isinstance(a, float) and (math.isnan(a) or math.isnan(b)):
        return int(math.isnan(a)) - int(math.isnan(b))
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    return int(a > b) - int(a < b)


COMPARISONS: Mapping[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def compared(sign: str, left: Expression, right: Expression) -> Expression:
    """Return a comparison."""
    wide = _common([left.type, right.type])
    return strict(
        BOOLEAN,
        f"({left.sql} {sign} {right.sql})",
        lambda a, b: COMPARISONS[sign](_order(a, b)),
        implied(left, wide),
        implied(right, wide),
    )


def between(part: Expression, low: Expression, high: Expression) -> Expression:
    """Return ``part BETWEEN low AND high``."""
    both = connected("AND", compared(">=", part, low), compared("<=", part, high))
    sql = f"({part.sql} BETWEEN {low.sql} AND {high.sql})"
    return Expression(BOOLEAN, sql, both.compute)


def connected(word: str, left: Expression, right: Expression) -> Expression:
    """Return ``left AND right``, or with ``OR``; the right part is not always asked."""
    decides = word == "OR"

    def of_row(row: Row) -> bool | None:
        one: bool | None = left.compute(row)
        if one is decides:
            return decides
        other: bool | None = right.compute(row)
        if other is decides:
            return decides
        return None if one is None or other is None else not decides

    return Expression(BOOLEAN, f"({left.sql} {word} {right.sql})", of_row)


def inverted(part: Expression) -> Expression:
    """Return ``NOT part``."""
    return strict(BOOLEAN, f"(NOT {part.sql})", lambda value: not value, part)


def is_null(part: Expression) -> Expression:
    """Return ``part IS NULL``."""
    return Expression(
        BOOLEAN, f"({part.sql} IS NULL)", lambda row: part.compute(row) is None
    )


def chosen(condition: Expression, yes: Expression, no: Expression) -> Expression:
    """Return a CASE; what it does not choose is not asked."""
    wide = _common([yes.type, no.type])
    one, other = implied(yes, wide), implied(no, wide)
    return Expression(
        wide,
        f"CASE WHEN {condition.sql} THEN {yes.sql} ELSE {no.sql} END",
        lambda row: (one if condition.compute(row) else other).compute(row),
    )


def coalesced(first: Expression, second: Expression) -> Expression:
    """Return ``coalesce(first, second)``."""
    wide = _common([first.type, second.type])
    one, other = implied(first, wide), implied(second, wide)

    def of_row(row: Row) -> Any:  # noqa: ANN401 - of the type
        value = one.compute(row)
        return other.compute(row) if value is None else value

    return Expression(wide, f"coalesce({first.sql}, {second.sql})", of_row)


def null_if(part: Expression, other: Expression) -> Expression:
    """Return ``nullif(part, other)``."""
    same = compared("=", part, other)

    def of_row(row: Row) -> Any:  # noqa: ANN401 - of the type
        return None if same.compute(row) else part.compute(row)

    return Expression(part.type, f"nullif({part.sql}, {other.sql})", of_row)


def as_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as Spark takes them."""
    columns = {}
    for name, kind in COLUMNS.items():
        values = [row[name] for row in rows]
        if kind.name == "decimal":
            arrow: pa.DataType = pa.decimal128(kind.precision, kind.scale)
            values = [None if one is None else _as_decimal(one) for one in values]
        else:
            arrow = _ARROW[kind.name]
        columns[name] = pa.array(values, arrow)
    return pa.table(columns)


def _as_decimal(number: Fraction) -> Decimal:
    with localcontext(_EXACT):
        return Decimal(number.numerator) / Decimal(number.denominator)


def as_values(column_: pa.ChunkedArray) -> list[Any]:
    """Return what Spark gave, as the reference has values."""
    kind = column_.type
    if pa.types.is_date32(kind):
        return column_.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(kind):
        return column_.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    values = column_.to_pylist()
    if pa.types.is_decimal(kind):
        return [None if one is None else Fraction(one) for one in values]
    return values  # type: ignore[no-any-return]
