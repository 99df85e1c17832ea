"""Spark's tree of an expression: its nodes, and how they fail instead of guessing.

The tree lives in the JVM. Spark's strict mode has gaps: some functions give null, or
the nearest number, if they have no value. Some compute with fewer bits or digits than
their type has. ``strict`` makes such nodes raise an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Any, TypeAlias

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.schemas.pipeline.expressions.expression_limits import (
    SEPARATOR_LENGTH_MAX,
)
from tallyweir.schemas.pipeline.expressions.text_patterns import (
    SLOW_LENGTH_MAX,
    PatternError,
    is_slow_like,
    is_slow_regex,
)

#: One node, with the tree below it.
Node: TypeAlias = Any


def kind_of(node: Node) -> str:
    """Return Spark's name for nodes of this kind."""
    return str(node.getClass().getSimpleName())


def type_of(node: Node) -> str:
    """Return the SQL type of an analysed node's values."""
    return str(node.dataType().catalogString())


def children_of(node: Node) -> list[Node]:
    """Return a node's parts."""
    children = node.children()
    return [children.apply(number) for number in range(children.size())]


def with_children(node: Node, children: Sequence[Node]) -> Node:
    """Return a node with other parts."""
    python_utils = the_jvm().org.apache.spark.api.python.PythonUtils
    return node.withNewChildren(python_utils.toSeq(list(children)))


def as_column(node: Node) -> Column:
    """Return a node for use with PySpark's functions."""
    return Column(_bridge().column(node))


def as_node(column: Column) -> Node:
    """Return a column of PySpark's functions as a node."""
    return _bridge().expression(column._jc)  # noqa: SLF001 - no public way


def catalyst() -> Any:  # noqa: ANN401 - of the JVM
    """Return the package of Spark's expressions."""
    return the_jvm().org.apache.spark.sql.catalyst


def the_jvm() -> Any:  # noqa: ANN401 - of the JVM
    """Return the JVM of the active session."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - no public way
    assert context is not None, "the session runs"
    return context._jvm  # noqa: SLF001 - no public way


def _bridge() -> Any:  # noqa: ANN401 - of the JVM
    return the_jvm().org.apache.spark.sql.classic.ExpressionUtils


_INFINITE = float("inf")
#: The most seconds that fit into a timestamp's microseconds.
_SECONDS_MAX = (2**63 - 1) // 10**6
#: Floating-point numbers from here on do not fit into a bigint.
_BIGINT_END = float(2**63)
#: Less than twice _BIGINT_END; below it, the sign shows whether the 64th bit was lost.
_TWICE_BIGINT = 1.3e19

DIVIDES = frozenset({"Divide", "IntegralDivide", "Pmod", "Remainder"})
CALCULATES = frozenset({"Abs", "Add", "Multiply", "Subtract", "UnaryMinus"}) | DIVIDES
_HAVE_MODES = frozenset({"Add", "Cast", "Multiply", "Subtract"}) | DIVIDES
#: Nodes that may make infinity or NaN from finite floating point, as IEEE 754 demands;
#: Postgres raises an error.
_LEAVES_RANGE = CALCULATES | {
    "Acos",
    "Acosh",
    "Asin",
    "Atanh",
    "Cast",
    "Cosh",
    "Cot",
    "Csc",
    "Exp",
    "Expm1",
    "Hypot",
    "Pow",
    "Sec",
    "Sinh",
    "Sqrt",
    "Tan",
    "ToDegrees",
}
#: Functions that give null for values for which they are not defined.
_GIVES_NULL = frozenset(
    {
        "Factorial",
        "Log",
        "Log10",
        "Log1p",
        "Log2",
        "Logarithm",
        "Sha2",
        "TruncDate",
        "TruncTimestamp",
        "Unhex",
        "WidthBucket",
    }
)
#: Functions that search their first part for their second part, or for patterns.
_SEARCHES = frozenset(
    {
        "ILike",
        "Like",
        "RLike",
        "RegExpCount",
        "RegExpExtract",
        "RegExpExtractAll",
        "RegExpInStr",
        "RegExpReplace",
        "RegExpSubStr",
        "StringSplit",
    }
)
_SEARCHES_FOR_SEVERAL = frozenset({"LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"})
#: Functions that put a separator between elements, with the separator's position.
_SEPARATES = {"ArrayJoin": 1, "ConcatWs": 0}
#: Functions that take an element. If elements cannot be null, Spark returns one even
#: for the index null.
_TAKES_ITEM = frozenset({"ElementAt", "GetArrayItem", "GetMapValue"})
#: The most times that ``strict`` computes a part, by kind.
_COPIES = dict.fromkeys(_GIVES_NULL | _TAKES_ITEM | {"Cast", "FromUnixTime"}, 2) | {
    "Ceil": 3,
    "Floor": 3,
    # Spark expands them so that a part occurs twice.
    "Between": 2,
    "NullIf": 2,
}
_COPIES_OF_DECIMALS = {"Abs": 3, "IntegralDivide": 5}
#: The same for ``finite``: three times in the result, once more as an operand, and once
#: as a divisor.
_COPIES_OF_FLOATS = 5
#: The casts that ``strict`` checks, by target and source type.
_CUTS_OFF = frozenset({("bigint", "double"), ("bigint", "float")})
_ASKS_FOR_NULL = frozenset({"IsNotNull", "IsNull"})
_FLOATING = ("float", "double")
_SHORT = ("tinyint", "smallint", "int")


@dataclass(frozen=True, slots=True)
class Floats:
    """Floating-point arithmetic whose result is checked once, at its end.

    Attributes:
        given: The values that it computes with.
        divisors: The divisors; a quotient does not show that its divisor is infinite.
    """

    given: list[Column] = field(default_factory=list)
    divisors: list[Column] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LengthLimit:
    """A limit on the length of a text.

    Attributes:
        position: The position of the text among the node's parts.
        most: The most characters that it may have.
        words: What the node does if the text is longer, in words.
    """

    position: int
    most: int
    words: str

    def is_exceeded_by(self, text: Column) -> Column:
        """Tell whether a text is too long."""
        return F.length(text) > self.most


def strict(node: Node, rewritten: Node, parts: Sequence[Node]) -> Node:
    """Make a node raise an exception where Spark ignores a failure."""
    kind, value = kind_of(node), as_column(rewritten)
    given = [as_column(part) for part in parts]
    types = [type_of(child) for child in children_of(node)]
    if kind in _GIVES_NULL:
        is_given = reduce(and_, (one.isNotNull() for one in given))
        return as_node(F.coalesce(value, F.when(is_given, _failing(node))))
    if kind in _TAKES_ITEM:
        return as_node(F.when(given[1].isNotNull(), value))
    if kind in _ASKS_FOR_NULL and children_of(children_of(node)[0]):
        # Spark does not evaluate a part that cannot be null, and so misses its failure.
        asked = as_column(catalyst().expressions.KnownNullable(parts[0]))
        return as_node(asked.isNull() if kind == "IsNull" else asked.isNotNull())
    replaced, limit = _replaced(node, types, given), length_limit(node)
    if limit is not None:
        replaced = _limited(node, rewritten, parts, limit)
    if replaced is not None:
        return as_node(replaced)
    is_wrong = _is_wrong(kind, type_of(node), types, value, given)
    if is_wrong is None:
        return rewritten
    return as_node(F.when(is_wrong, _failing(node)).otherwise(value))


def finite(node: Node, result: Node, floats: Floats) -> Node:
    """Make arithmetic on finite numbers raise an exception if its result is not."""
    value = as_column(result)
    ends = (~_is_finite(one) for one in (value, *floats.divisors))
    was_finite = (_is_finite(one) for one in floats.given)
    # For a null result Spark has not evaluated some parts, which may be what fails.
    is_left = value.isNotNull() & reduce(or_, ends)
    fails = reduce(and_, was_finite, is_left)
    return as_node(F.when(fails, _failing(node)).otherwise(value))


def is_float_arithmetic(node: Node) -> bool:
    """Tell whether a node computes floating point from floating point."""
    if type_of(node) not in _FLOATING or kind_of(node) not in _LEAVES_RANGE:
        return False
    return all(type_of(child) in _FLOATING for child in children_of(node))


def may_be_infinite(node: Node) -> bool:
    """Tell whether an operand of arithmetic may already be infinite or NaN."""
    if kind_of(node) == "Cast":
        return type_of(children_of(node)[0]) in ("string", "variant")
    return not node.foldable()


def copies_of_parts(node: Node, *, is_end: bool) -> int:
    """Return the most times that a part of a node is computed when it is made strict.

    Args:
        node: The node, as the analyser returned it.
        is_end: Whether ``finite`` is applied to it.
    """
    kind, parts = kind_of(node), children_of(node)
    if is_end:
        return _COPIES_OF_FLOATS
    if kind in _COPIES_OF_DECIMALS and type_of(parts[0]).startswith("decimal"):
        return _COPIES_OF_DECIMALS[kind]
    if kind == "Cast" and (type_of(node), type_of(parts[0])) not in _CUTS_OFF:
        return 1
    return _COPIES.get(kind, 1)


def length_limit(node: Node) -> LengthLimit | None:
    """Find the text that a node must not use if it is long; None if there is none.

    A long text would take too much time to search, and a long separator too much
    memory.

    Args:
        node: The node, as the analyser returned it.
    """
    separator = _SEPARATES.get(kind_of(node))
    if separator is None:
        if not _searches_slowly(node):
            return None
        position, most, what = 0, SLOW_LENGTH_MAX, "searches a text"
    elif kind_of(children_of(node)[separator]) == "Literal":
        return None
    else:
        position, most, what = separator, SEPARATOR_LENGTH_MAX, "has a separator"
    return LengthLimit(
        position=position,
        most=most,
        words=f"{what} of more than {most:,} characters",
    )


def gives_null(node: Node) -> bool:
    """Tell whether a node belongs to a ``try_`` function."""
    return kind_of(node) in _HAVE_MODES and str(node.evalMode()) == "TRY"


def _replaced(
    node: Node, types: Sequence[str], given: Sequence[Column]
) -> Column | None:
    """Return an exact form of a node; None if Spark's own form is exact."""
    kind, type_ = kind_of(node), type_of(node)
    if kind in ("DateAdd", "DateSub"):
        # In Spark's own form, days wrap around.
        day, days = F.unix_date(given[0]), given[1].cast("int")
        moved = day + days if kind == "DateAdd" else day - days
        return F.date_from_unix_date(moved)
    if not (types and types[0].startswith("decimal")):
        return None
    (number, *_) = given
    if kind == "Cast" and type_ in _SHORT:
        # Spark first rounds the decimal to the nearest double.
        if gives_null(node):
            return number.try_cast("bigint").try_cast(type_)
        return number.cast("bigint").cast(type_)
    if kind not in ("Abs", "UnaryMinus"):
        return None
    # Spark rounds to 34 digits when it changes a number's sign.
    changed = (F.lit(0).cast(type_) - number).cast(type_)
    if kind == "Abs":
        changed = F.when(number < F.lit(0), changed).otherwise(number)
    return changed


def _limited(
    node: Node, rewritten: Node, parts: Sequence[Node], limit: LengthLimit
) -> Column:
    """Make a node raise an exception for a text that is too long.

    It computes the text once. Otherwise each search within a search would double the
    time, because each uses its text twice.
    """

    def search(text: Column) -> Column:
        given = [*parts]
        given[limit.position] = as_node(text)
        value = as_column(with_children(rewritten, given))
        return F.when(limit.is_exceeded_by(text), _failing(node)).otherwise(value)

    text = as_column(parts[limit.position])
    return F.transform(F.array(text), search)[0]


def _is_wrong(
    kind: str,
    type_: str,
    given_types: Sequence[str],
    value: Column,
    given: Sequence[Column],
) -> Column | None:
    """Tell whether Spark has returned another number for one that does not fit.

    Returns:
        None if it never does.
    """
    of_floats = bool(given_types) and given_types[0] in _FLOATING
    if kind in ("Ceil", "Floor") and of_floats:
        return ~((given[0] < _BIGINT_END) & (given[0] >= -_BIGINT_END))
    if kind == "Cast" and type_ == "bigint" and of_floats:
        # Spark turns the first number that is too large into the largest that fits.
        return given[0] == _BIGINT_END
    if kind == "FromUnixTime":
        return F.abs(given[0]) > _SECONDS_MAX
    if kind == "IntegralDivide" and given_types[0].startswith("decimal"):
        # Spark keeps only the last 64 bits.
        about = given[0].cast("double") / given[1].cast("double")
        has_sign = (value == F.lit(0)) | ((value > F.lit(0)) == (about > F.lit(0)))
        return ~((F.abs(about) < _TWICE_BIGINT) & has_sign)
    return None


def _searches_slowly(node: Node) -> bool:
    """Tell whether a search's time may grow with the square of the text's length."""
    kind = kind_of(node)
    if kind in _SEARCHES_FOR_SEVERAL:
        found = node.patterns()
        patterns = [
            str(found.apply(number).toString()) for number in range(found.size())
        ]
    elif kind in _SEARCHES:
        pattern = children_of(node)[1]
        while kind_of(pattern) != "Literal" and children_of(pattern):
            pattern = children_of(pattern)[0]
        is_literal = kind_of(pattern) == "Literal"
        patterns = [str(pattern.value().toString())] if is_literal else []

    else:
        return False
    is_slow = is_slow_like if "Like" in kind and kind != "RLike" else is_slow_regex
    try:
        return not patterns or any(is_slow(one) for one in patterns)
    except PatternError:
        return True


def _is_finite(number: Column) -> Column:
    # In Spark NaN is greater than every number, even infinity.
    return F.abs(number) < _INFINITE


def _failing(node: Node) -> Column:
    """Return a column that raises an exception, or null in a ``try_`` function."""
    return F.lit(None) if gives_null(node) else F.raise_error(F.lit("no value"))
