"""Expressions and rows by chance, for ``reference_expressions.py`` to evaluate."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from tallyweir.spark_jobs.frame.tests.reference_expressions import (
    BIGINT,
    BITS,
    COLUMNS,
    COMPARISONS,
    DATE,
    DIGITS,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    Expression,
    FailedError,
    Type,
    absolute,
    arithmetic,
    between,
    cast,
    chosen,
    coalesced,
    column,
    compared,
    connected,
    decimal,
    float_of,
    inverted,
    is_null,
    literal,
    negated,
    null_if,
    strict,
    whole_below,
)

_WORDS = (
    *("12", "-7", " 5 ", "x", "", "1e3", "99999999999", "12.5", "0.0000000000001"),
    *("2020-02-30", "2020-02-29", "%zz", "a%20b", "true", "no", "9" * 39, "é"),
)
_FLOATS = (0.0, -0.0, 0.5, 1.0, -3.0, 1e-300, 1e300, -1e300, 3e38, 2.0**53, 1.1, 9.3e18)


_NUMBERS = ("decimal", "double", "float")
_COLUMNS_SHARE = 0.8
_ARITHMETIC_SHARE = 0.5
_COMPARISONS_SHARE = 0.5
_NULLS_SHARE = 0.06
_ENDS_SHARE = 0.5


def _days_later(sign: int) -> Callable[[int, int], int]:
    def later(day: int, days: int) -> int:
        moved = day + sign * days
        if not INT.holds(moved):
            raise FailedError("fails in")
        return moved

    return later


def _instant(seconds: int) -> int:
    if not BIGINT.holds(seconds * 10**6):
        raise FailedError("fails in")
    return seconds * 10**6


def _unescaped(text: str) -> str:
    if re.search(r"%(?![0-9a-fA-F]{2})", text):
        raise FailedError("fails in")
    return text.replace("%20", " ")


def random_expression(random: Random, depth: int) -> Expression:
    """Return an expression of whichever type."""
    make = random.choices((_random_number, _random_boolean, _random_other), (6, 3, 1))[
        0
    ]
    return make(random, depth)


def _random_number(random: Random, depth: int) -> Expression:
    if depth == 0:
        numbers = [n for n, t in COLUMNS.items() if t.is_whole or t.name in _NUMBERS]
        if random.random() < _COLUMNS_SHARE:
            return column(random.choice(numbers))
        number = random.choice((0, 1, 2, -1, 3, 7, 100))
        return literal(INT, str(number), number)
    part = _random_number(random, depth - 1)
    other = _random_number(random, random.randrange(depth))
    if random.random() < _ARITHMETIC_SHARE:
        sign = random.choice(("+", "-", "*", "*", "/", "%", "div"))
        return _random_arithmetic(sign, part, other)
    return random.choice(
        (
            lambda: negated(part),
            lambda: absolute(part),
            lambda: _random_cast(random, part),
            lambda: cast(column("word"), random.choice((INT, BIGINT, decimal(20, 3)))),
            lambda: chosen(_random_boolean(random, depth - 1), part, other),
            lambda: coalesced(part, other),
            lambda: null_if(part, other),
            lambda: whole_below(
                random.choice(("floor", "ceil")),
                column(random.choice(("price", "fine", "money", "x", "y"))),
            ),
        )
    )()


def _random_cast(random: Random, part: Expression) -> Expression:
    to = random.choice((INT, BIGINT, decimal(10, 2), decimal(38, 6), DOUBLE))
    if part.type in (DOUBLE, FLOAT) and to.name == "decimal":
        # What a binary fraction is in decimals is Java's matter.
        to = BIGINT
    return cast(part, to)


def _random_arithmetic(sign: str, left: Expression, right: Expression) -> Expression:
    types = left.type, right.type
    if DOUBLE in types or FLOAT in types:
        sign = "/" if sign == "div" else sign
        if FLOAT in types and types != (FLOAT, FLOAT):
            left, right = cast(left, DOUBLE), cast(right, DOUBLE)
    elif sign == "*" and sum(one.as_decimal.scale for one in types) > DIGITS:
        # Such a product is refused.
        sign = "+"
    return arithmetic(sign, left, right)


def _random_boolean(random: Random, depth: int) -> Expression:
    if depth == 0:
        return column("b")
    number = _random_number(random, depth - 1)
    other = _random_number(random, random.randrange(depth))
    sign = random.choice(tuple(COMPARISONS))
    if random.random() < _COMPARISONS_SHARE:
        return compared(sign, number, other)
    return random.choice(
        (
            lambda: connected(
                random.choice(("AND", "OR")),
                _random_boolean(random, depth - 1),
                _random_boolean(random, depth - 1),
            ),
            lambda: inverted(_random_boolean(random, depth - 1)),
            lambda: is_null(number),
            lambda: between(number, other, _random_number(random, 0)),
            lambda: compared(sign, *_random_pair(random, depth - 1)),
        )
    )()


def _random_pair(random: Random, depth: int) -> tuple[Expression, Expression]:
    one, other = _random_other(random, depth), _random_other(random, depth)
    return one, other if one.type == other.type else one


def _random_other(random: Random, depth: int) -> Expression:
    if depth == 0:
        return column(random.choice(("day", "at", "word")))
    word = column("word")
    return random.choice(
        (
            lambda: _random_day(random),
            lambda: cast(word, DATE),
            lambda: strict(TIMESTAMP, "timestamp_seconds(l)", _instant, column("l")),
            lambda: strict(STRING, "url_decode(word)", _unescaped, word),
            lambda: strict(
                STRING, "concat(word, 'é', word)", lambda a: f"{a}é{a}", word
            ),
        )
    )()


def _random_day(random: Random) -> Expression:
    days = cast(column(random.choice(("i", "s16", "k"))), INT)
    name, sign = random.choice((("date_add", 1), ("date_sub", -1)))
    sql = f"{name}(day, {days.sql})"
    return strict(DATE, sql, _days_later(sign), column("day"), days)


def random_rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Return rows of ``COLUMNS``: of each type the ends, the middle, and nulls."""
    return [
        {name: _random_value(random, kind) for name, kind in COLUMNS.items()}
        for _ in range(count)
    ]


def _random_value(random: Random, kind: Type) -> Any:  # noqa: ANN401, PLR0911 - of the type
    if random.random() < _NULLS_SHARE:
        return None
    if kind.is_whole:
        half = 1 << (BITS[kind.name] - 1)
        ends = (-half, -half + 1, half - 1, half - 2, 0, 1, -1, 2, 3, 10, 60)
        if random.random() < _ENDS_SHARE:
            return random.choice(ends)
        return random.randrange(-half, half) >> random.randrange(BITS[kind.name])
    if kind.name == "decimal":
        digits = random.randrange(kind.precision + 1)
        unscaled = random.choice((0, 1, 10**digits - 1, random.randrange(10**digits)))
        places = Fraction(10) ** kind.scale
        return Fraction(unscaled * random.choice((1, -1))) / places
    if kind in (DOUBLE, FLOAT):
        number = random.choice(
            (*_FLOATS, 2.0**63, math.inf, math.nan, random.uniform(-1e6, 1e6))
        )
        with np.errstate(over="ignore"):
            return float_of(number, kind)
    if kind == DATE:
        return random.randrange(-300_000, 1_000_000)
    if kind == TIMESTAMP:
        return random.randrange(-(10**16), 10**17)
    return random.choice(_WORDS) if kind == STRING else random.random() < _ENDS_SHARE
