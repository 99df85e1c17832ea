"""Evaluate SQL expressions so that each event gets the exact result or a known failure.

Spark evaluates them in its strict mode (``spark_session``): an overflow, a division by
zero or an impossible conversion raises an exception. That would end the batch, again at
each start. ``TryEval``, on which Spark's ``try_`` functions are built, turns the
exception into a null, only for that event. A struct around the value distinguishes this
null from a null that the expression gives. Spark ignores some failures even in strict
mode; this module makes them raise an exception as well.

``TryEval`` drops the exception. To find what failed, this module tries the parts of the
expression in Spark's order of evaluation, only for events that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.frame.strict_nodes import (
    CALCULATES,
    DIVIDES,
    Floats,
    Node,
    as_column,
    as_node,
    catalyst,
    children_of,
    copies_of_parts,
    finite,
    gives_null,
    is_float_arithmetic,
    kind_of,
    length_limit,
    may_be_infinite,
    strict,
    the_jvm,
    type_of,
    with_children,
)

#: The prefix of columns that hold attempts.
_TRIED = "tallyweir_tried_"
#: The field of an attempt that holds the value.
_VALUE = "value"
_BOOLEAN = "boolean"

_DECIMAL_DIGITS = 38
#: The most characters of an expression, or a part of it, in a dead letter's detail.
_QUOTED_MAX = 300
#: The most parts of an expression that are tried to find the one that failed.
_TRIED_MAX = 24
#: The most times that a part of an expression may be computed for one event.
_COPIES_MAX = 1_000

#: Spark's names of nodes that have a value for all values of their parts.
_NEVER_FAILS = frozenset(
    {
        "Alias",
        "And",
        "AttributeReference",
        "CaseWhen",
        "Coalesce",
        "Contains",
        "EndsWith",
        "EqualNullSafe",
        "EqualTo",
        "GetStructField",
        "GreaterThan",
        "GreaterThanOrEqual",
        "If",
        "In",
        "IsNaN",
        "IsNotNull",
        "IsNull",
        "LambdaFunction",
        "Length",
        "LessThan",
        "LessThanOrEqual",
        "Literal",
        "NamedLambdaVariable",
        "Not",
        "Or",
        "StartsWith",
        "TryEval",
    }
)
_NAMES_ONLY = "org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules"
_STOPS_AT_NULL = CALCULATES | {
    "EqualTo",
    "GreaterThan",
    "GreaterThanOrEqual",
    "LessThan",
    "LessThanOrEqual",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """A part of an expression that may fail.

    Attributes:
        applies: Whether it has failed; evaluated only if no earlier part has.
        words: Its failure in words.
    """

    applies: Column
    words: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactExpression:
    """An expression, ready for all events that have its columns.

    Attributes:
        text: The expression in the pipeline.
        value: The result; raises an exception if there is no result.
        causes: The parts that may fail, in the order of evaluation. Empty if the
            expression cannot fail.
    """

    text: str
    value: Column
    causes: Sequence[_Cause]

    def failure(self, purpose: str) -> Column:
        """Say why the expression has no value for an event on which it failed.

        Args:
            purpose: The expression's purpose.
        """
        begin = f"{purpose}, {_short(self.text)}, has no value: "
        *tried, last = self.causes[: _TRIED_MAX + 1]
        if not tried:
            return F.lit(f"{begin}{last.words}.")
        if len(self.causes) > len(tried) + 1:
            last = replace(last, words="one of its parts fails")
        told = F.lit(f"{begin}{last.words}.")
        for cause in reversed(tried):
            this = F.lit(f"{begin}{cause.words}.")
            told = F.when(cause.applies, this).otherwise(told)
        # A part that evaluation skips may also fail when it is tried by itself.
        return F.coalesce(_tried(told), F.lit(f"{begin}one of its parts fails."))


def read_expression(
    events: DataFrame, text: str, convert_to: str | None = None
) -> ExactExpression:
    """Read an expression over the columns of events.

    Args:
        events: Any events that have the columns, with the same types.
        text: The expression in Spark SQL.
        convert_to: The Spark type to which the result is cast.

    Raises:
        ConfigurationError: ``EXPRESSION_ROUNDS``, ``EXPRESSION_REPEATS``.
    """
    column = F.expr(text)
    if convert_to is not None:
        column = column.cast(convert_to)
    query = events.select(column)._jdf.queryExecution()  # noqa: SLF001 - no public way
    walk = _Walk(text)
    value = walk.rewrite(query.analyzed().expressions().apply(0))
    return ExactExpression(text=text, value=as_column(value), causes=walk.causes)


class TriedExpressions:
    """Evaluates expressions on events, each expression only once.

    An expression that can fail is tried in an additional column, which ``add_to`` adds.
    The columns that the other methods return need this column. All of them can be used
    for other events with the same columns, without reading the expressions again.

    Args:
        events: The events on which the expressions are evaluated.
    """

    def __init__(self, events: DataFrame) -> None:
        self._events = events
        self._known: dict[tuple[str, str | None], ExactExpression] = {}
        self._attempts: dict[ExactExpression, tuple[str, Column]] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that ``add_to`` adds."""
        return tuple(name for name, _ in self._attempts.values())

    def add_to(self, events: DataFrame) -> DataFrame:
        """Return the events with the attempts of all expressions used so far."""
        tried = dict(self._attempts.values())
        return events.withColumns(tried) if tried else events

    def value(self, text: str, convert_to: str | None = None) -> Column:
        """Return an expression's value; null for events on which it fails."""
        exact = self._read(text, convert_to)
        if not exact.causes:
            return exact.value
        return F.col(self._try(exact)).getField(_VALUE)

    def is_true(self, condition: str) -> Column:
        """Tell whether a condition is true; null and a failure count as false."""
        holds = self.value(condition, _BOOLEAN)
        return F.coalesce(holds, F.lit(False))  # noqa: FBT003 - a value

    def has_failed(self, condition: str) -> Column | None:
        """Tell whether a condition fails; None if it cannot."""
        exact = self._read(condition, _BOOLEAN)
        return F.col(self._try(exact)).isNull() if exact.causes else None

    def failure(
        self, text: str, purpose: str, convert_to: str | None = None
    ) -> Column | None:
        """Say why an expression fails on an event; null if it does not.

        Args:
            text: The expression.
            purpose: The expression's purpose.
            convert_to: As for ``value``.

        Returns:
            None if the expression cannot fail.
        """
        exact = self._read(text, convert_to)
        if not exact.causes:
            return None
        has_failed = F.col(self._try(exact)).isNull()
        return F.when(has_failed, exact.failure(purpose))

    def failure_of_condition(self, condition: str, purpose: str) -> Column | None:
        """Say why a condition fails on an event; see ``failure``."""
        return self.failure(condition, purpose, _BOOLEAN)

    def _read(self, text: str, convert_to: str | None) -> ExactExpression:
        key = text, convert_to
        if key not in self._known:
            self._known[key] = read_expression(self._events, text, convert_to)
        return self._known[key]

    def _try(self, exact: ExactExpression) -> str:
        if exact not in self._attempts:
            name = f"{_TRIED}{len(self._attempts)}"
            self._attempts[exact] = name, _attempt(exact.value)
        return self._attempts[exact][0]


@dataclass(frozen=True, slots=True)
class _Walk:
    """Reads an analysed expression in the order of evaluation.

    Attributes:
        text: The expression; each node knows its part of this text.
        causes: The parts found that may fail.
        shared: The parts that it contains more than once, by Spark's numbers.
    """

    text: str
    causes: list[_Cause] = field(default_factory=list)
    shared: dict[str, Node] = field(default_factory=dict)

    def rewrite(
        self,
        node: Node,
        reached: Column | None = None,
        floats: Floats | None = None,
        *,
        is_tried: bool = True,
        copies: int = 1,
    ) -> Node:
        """Return the tree below a node, made strict, with columns referenced by name.

        Args:
            node: The node, as the analyser returned it.
            reached: Whether evaluation reaches the node; None if it always does.
            floats: The arithmetic that uses its result, if that is floating point.
            is_tried: Whether the node can be tried by itself.
            copies: The most times that it is computed, with its surroundings.

        Raises:
            ConfigurationError: ``EXPRESSION_REPEATS``.
        """
        kind = kind_of(node)
        self._check_copies(node, copies)
        if kind == "With":
            # Spark would compute shared parts in advance, where no code catches an
            # exception.
            node, *shared = children_of(node)
            self.shared.update((str(one.id()), one.child()) for one in shared)
            return self.rewrite(node, reached, floats, is_tried=is_tried, copies=copies)
        if kind == "CommonExpressionRef":
            node = self.shared[str(node.id())]
            return self.rewrite(node, reached, floats, is_tried=is_tried, copies=copies)
        is_arithmetic = is_float_arithmetic(node)
        is_end = is_arithmetic and (floats is None or gives_null(node))
        own = Floats() if floats is None or is_end else floats
        # The parts of a lambda function use variables that exist only inside it.
        tries_parts = is_tried and kind not in ("LambdaFunction", "TryEval")
        copies *= copies_of_parts(node, is_end=is_end)
        given = list(enumerate(children_of(node)))
        if kind in DIVIDES:
            # Spark evaluates the divisor first.
            given.reverse()
        parts: dict[int, Node] = {}
        for number, child in given:
            comes = _both(reached, _comes_to(kind, number, list(parts.values())))
            parts[number] = self.rewrite(
                child,
                comes,
                own if is_arithmetic else None,
                is_tried=tries_parts,
                copies=copies,
            )
        ordered = [parts[number] for number in sorted(parts)]
        if is_arithmetic and kind in DIVIDES:
            own.divisors.append(as_column(ordered[1]))
        result = strict(node, self._with_parts(node, ordered), ordered)
        if is_end:
            result = finite(node, result, own)
        begins = is_end or (not is_arithmetic and may_be_infinite(node))
        if floats is not None and begins:
            floats.given.append(as_column(result))
        if is_tried and not _never_fails(node):
            self._note(node, result, ordered, reached)
        return result

    def _with_parts(self, node: Node, parts: Sequence[Node]) -> Node:
        if kind_of(node) == "AttributeReference":
            names = catalyst().analysis.UnresolvedAttribute
            return names.quoted(node.name())
        if kind_of(node) == "Multiply" and node.dataType().typeName().startswith("dec"):
            self._check_scales(node)
        return with_children(node, parts) if parts else node

    def _check_copies(self, node: Node, copies: int) -> None:
        """Refuse a part that would be computed too often: each use computes it again.

        Spark would share it only where no code catches an exception.
        """
        if copies > _COPIES_MAX:
            raise ConfigurationError(
                "EXPRESSION_REPEATS",
                saw=f"{self._part(node)} would be computed up to {copies:,} times for "
                "each event.",
                why="Functions such as ln, floor, nullif or abs of decimals compute "
                "their arguments 2 to 5 times, to find failures that Spark would "
                f"hide; {_COPIES_MAX:,} times in all is the limit.",
                fix="Nest fewer of these functions, or add a part of the expression "
                "as a computed column.",
            )

    def _check_scales(self, product: Node) -> None:
        """Refuse a product if Spark would round its last places."""
        scales = [factor.dataType().scale() for factor in children_of(product)]
        if sum(scales) > _DECIMAL_DIGITS:
            raise ConfigurationError(
                "EXPRESSION_ROUNDS",
                saw=f"{self._part(product)} multiplies decimals of {scales[0]} and "
                f"{scales[1]} places.",
                why=f"The product may need {sum(scales)}; Spark keeps "
                f"{_DECIMAL_DIGITS}, and would round off the others.",
                fix="Choose the places to keep, for example with cast(price AS "
                "decimal(38, 6)).",
            )

    def _note(
        self,
        node: Node,
        result: Node,
        parts: Sequence[Node],
        reached: Column | None,
    ) -> None:
        """Note how a node may fail; the node can be tried by itself."""
        part = self._part(node)
        if kind_of(node) in DIVIDES:
            divided, divisor = map(as_column, parts)
            is_zero = (divisor == F.lit(0)) & divided.isNotNull()
            self._add(reached, is_zero, f"{part} divides by zero")
        limit = length_limit(node)
        if limit is not None:
            is_exceeded = limit.is_exceeded_by(as_column(parts[limit.position]))
            self._add(reached, is_exceeded, f"{part} {limit.words}")
        failed = _attempt(as_column(result)).isNull()
        self._add(reached, failed, _words(node, part))

    def _add(self, reached: Column | None, failed: Column, words: str) -> None:
        applies = failed if reached is None else reached & failed
        self.causes.append(_Cause(applies=applies, words=words))

    def _part(self, node: Node) -> str:
        """Quote a node's part of the expression."""
        first, last = node.origin().startIndex(), node.origin().stopIndex()
        if not (first.isDefined() and last.isDefined()):
            return _short(self.text)
        return _short(self.text[first.get() : last.get() + 1])


def _never_fails(node: Node) -> bool:
    """Tell whether a node has a value whenever its parts have one."""
    if kind_of(node) == "Cast":
        (child,) = children_of(node)
        can_up_cast = catalyst().expressions.Cast.canUpCast
        return bool(can_up_cast(child.dataType(), node.dataType()))
    if kind_of(node) in _NEVER_FAILS:
        return True
    # Some functions are only names that Spark replaces by other expressions.
    return bool(the_jvm().java.lang.Class.forName(_NAMES_ONLY).isInstance(node))


def _words(node: Node, part: str) -> str:
    """Say what a node does when it fails."""
    kind, type_ = kind_of(node), type_of(node)
    if is_float_arithmetic(node):
        return f"{part} is no finite number"
    if kind in CALCULATES:
        return f"{part} overflows {type_}"
    if kind == "Cast":
        (child,) = children_of(node)
        return f"{part} cannot make {type_} of this {type_of(child)}"
    return f"{str(node.prettyName()).lower()} fails in {part}"


def _comes_to(kind: str, number: int, before: Sequence[Node]) -> Column | None:
    """Tell whether evaluation reaches a part.

    Args:
        kind: The kind of the node that has the part.
        number: The part's position.
        before: The parts before it, in the order of evaluation.

    Returns:
        None if evaluation always reaches it.
    """
    former = [as_column(part) for part in before]
    if not former:
        return None
    comes: Column | None = None
    if kind == "If":
        comes = _is_true(former[0]) if number == 1 else ~_is_true(former[0])
    elif kind == "CaseWhen":
        # The parts are condition, value, condition, value, ..., and maybe a last value.
        conditions = [_is_true(one) for one in former[::2]]
        chosen = conditions.pop() if number % 2 else None
        comes = reduce(_both, (~one for one in conditions), chosen)
    elif kind == "Coalesce":
        comes = reduce(and_, (one.isNull() for one in former))
    elif kind == "And":
        comes = F.coalesce(former[0], F.lit(True))  # noqa: FBT003 - a value
    elif kind == "Or":
        comes = ~_is_true(former[0])
    elif kind in _STOPS_AT_NULL:
        comes = former[0].isNotNull()
    return comes


def _both(one: Column | None, other: Column | None) -> Column | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _is_true(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))  # noqa: FBT003 - a value


def _attempt(value: Column) -> Column:
    return _tried(F.struct(value.alias(_VALUE)))


def _tried(value: Column) -> Column:
    """Turn an exception into a null."""
    return as_column(catalyst().expressions.TryEval(as_node(value)))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _QUOTED_MAX else f"{text[: _QUOTED_MAX - 1]}…"
