"""Checks the SQL in a pipeline file: one value per event, the same on a replay.

The expressions run in Spark. This module parses them with sqlglot's grammar of Spark
SQL, so that mistakes show before Spark starts. Spark gets a valid expression as the
user wrote it, never as sqlglot would write it.

The checks look for functions in the tokens, not in the tree: the tree gives some
functions other names, and a list of node types would miss quoted or qualified calls.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallyweir.schemas.pipeline.checks.problems import Problem, suggest
from tallyweir.schemas.pipeline.expressions.expression_limits import (
    DEPTH_MAX,
    TOKENS_MAX,
    find_calls,
    find_excesses,
    is_too_deep,
    literal_number,
)
from tallyweir.schemas.pipeline.expressions.spark_functions import (
    find_refusal,
    is_known,
    list_known,
)
from tallyweir.schemas.schema_tree import travels_as

if TYPE_CHECKING:
    from sqlglot.expressions import Expr
    from sqlglot.tokenizer_core import Token

_DIALECT = "spark"
_ONE_VALUE = "An expression here must return one value for one event."
_REPLAY = "A replay must give the same answer."

# Without parentheses, these are still functions, unless a column has the name.
_NILADIC = frozenset(
    {
        "current_catalog",
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
    }
)
# Functions that cast.
_CASTS = frozenset(
    {"bigint", "binary", "boolean", "date", "decimal", "double", "float", "int"}
    | {"smallint", "string", "time", "timestamp", "tinyint"}
)
# Types of contracts, by the kind of literal to compare them with.
_TEXTS = frozenset({"string", "uuid", "enum"})
_NO_TEXTS = (
    *("boolean", "int", "long", "float", "double", "decimal", "date", "timestamp"),
    "local-timestamp",
)
# Spark casts these strings to the time of the query; a zone's name may follow.
_SPECIAL_TIME = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_TIME_TYPES = frozenset(
    {"DATE", "TIME", "TIMESTAMP", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "TIMESTAMPTZ"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The result of inspecting an expression.

    Attributes:
        columns: Columns that it reads, in order, each once; only ``a`` of ``a.b.c``.
        compared: Columns that are compared with a literal, and whether that is text.
        is_no_condition: It can only be a number or a text.
        problems: Why it is refused; empty if it may be used.
    """

    columns: tuple[str, ...] = ()
    compared: tuple[tuple[str, bool], ...] = ()
    is_no_condition: bool = False
    problems: tuple[Problem, ...] = ()


@functools.lru_cache(maxsize=1024)
def inspect_expression(text: str) -> Inspection:
    """Parse one expression, and find its problems."""
    # Import late: sqlglot takes longer than the rest of this package, and a pipeline
    # without expressions does not need it.
    from sqlglot import exp, parse_one, tokenize  # noqa: PLC0415
    from sqlglot.errors import ParseError, TokenError  # noqa: PLC0415

    try:
        tokens = tokenize(text, read=_DIALECT)
    except TokenError:
        return _refuse(_unparsable(text, "a quotation mark or comment is not closed"))
    problems = tuple(_find_in_tokens(text, tokens))
    if problems:
        return _refuse(*problems)
    try:
        tree = parse_one(text, read=_DIALECT, into=exp.Condition)
    except RecursionError:
        return _refuse(_too_deep(text))
    except ParseError as exc:
        error = exc.errors[0]
        near = f"{error.get('start_context') or ''}{error.get('highlight') or ''}"
        seen = f"it stops making sense at character {len(near)}, after {near!r}"
        return _refuse(_unparsable(text, seen))
    return Inspection(
        columns=tuple(dict.fromkeys(_find_columns(tree))),
        compared=tuple(dict.fromkeys(_find_compared(tree))),
        is_no_condition=isinstance(
            tree.unnest(),
            exp.Literal | exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod | exp.DPipe,
        ),
        problems=(
            *_find_stars(text, tree),
            *_find_special_times(text, tree),
            *_find_computed_times(text, tree),
        ),
    )


def _find_in_tokens(text: str, tokens: list[Token]) -> Iterator[Problem]:
    if not tokens:
        yield _unparsable(text, "it is empty")
    elif is_too_deep(tokens):
        yield _too_deep(text)
    else:
        yield from _find_structure(text, tokens)
        yield from _find_functions(text, tokens)
        for excess in find_excesses(tokens):
            yield replace(excess, saw=f"{text!r} {excess.saw}.")


def check_condition(text: str | None) -> Iterator[Problem]:
    """Find the problems of a condition, if there is one."""
    if text is None:
        return
    inspection = inspect_expression(text)
    yield from inspection.problems
    if inspection.is_no_condition:
        yield Problem(
            code="PIPELINE_EXPRESSION_TYPE",
            saw=f"{text!r} is a number or a text.",
            why="A condition must be true or false; Spark would guess which one is "
            "meant.",
            fix="Compare it with something, as in … > 0 or … IS NOT NULL.",
        )


def split_call(text: str) -> tuple[str, str] | None:
    """Split ``sum(a + b)`` into ``sum`` and ``a + b``, both as written.

    Returns:
        Name and arguments; None if the text is not exactly one call.
    """
    from sqlglot import tokenize  # noqa: PLC0415
    from sqlglot.errors import TokenError  # noqa: PLC0415

    try:
        tokens = tokenize(text, read=_DIALECT)
    except TokenError:
        return None
    if not tokens or not tokens[0].text.isidentifier():
        return None
    depth = 0
    for token in tokens[1:]:
        depth += {"(": 1, ")": -1}.get(_symbol(text, token), 0)
        if depth == 0:
            if token is tokens[1] or token is not tokens[-1]:
                return None
            return tokens[0].text, text[tokens[1].end + 1 : token.start].strip()
    return None


def is_special_time(text: str) -> bool:
    """Return whether Spark casts a literal of this text to a time of its own clock."""
    return _SPECIAL_TIME.match(text) is not None


def with_written_casts(text: str) -> str:
    """Rewrite ``int(a)`` as ``CAST(a AS int)``, which Spark tells from its own casts.

    The expression means the same.
    """
    from sqlglot import tokenize  # noqa: PLC0415

    edits: list[tuple[int, int, str]] = []
    tokens = tokenize(text, read=_DIALECT)
    for call in find_calls(tokens):
        # A type, such as decimal(10), has only a number in its brackets.
        if call.name not in _CASTS or len(call.arguments) != 1:
            continue
        if literal_number(call.arguments[0]) is None:
            end = call.arguments[0][-1].end + 1
            edits.append((end, end, f" AS {call.name}"))
            edits.append((call.start, call.name_end, "CAST"))
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def find_unknown_columns(text: str, known: Sequence[str]) -> Iterator[Problem]:
    """Find columns that the events do not have; case does not count, as in Spark."""
    folded = {name.casefold() for name in known}
    for column in inspect_expression(text).columns:
        if column.casefold() not in folded:
            yield Problem(
                code="PIPELINE_UNKNOWN_COLUMN",
                saw=f"{text!r} reads the column {column!r}.",
                why="The events do not have it.",
                fix=suggest(column, known),
            )


def find_mistyped(text: str, types: Mapping[str, str]) -> Iterator[Problem]:
    """Find fields that are compared with a literal of another kind.

    At the driver's start, Spark finds all misfits; this check needs no Spark.

    Args:
        text: The expression.
        types: Types of the fields, by the names in contracts.
    """
    folded = {name.casefold(): kind for name, kind in types.items()}
    for column, is_text in inspect_expression(text).compared:
        kind = folded.get(column.casefold(), "")
        # Spark has a value that travels as text as that text.
        if (kind in _TEXTS or travels_as(kind)) and not is_text:
            seen, fix = "a number", f"Write a text, or CAST({column} AS int)."
        elif kind.startswith(_NO_TEXTS) and not travels_as(kind) and is_text:
            seen, fix = "a text", f"Write a value of type {kind}."
        else:
            continue
        yield Problem(
            code="PIPELINE_EXPRESSION_TYPE",
            saw=f"{text!r} compares {column}, which is {kind}, with {seen}.",
            why="Spark would silently convert one of them, possibly to null.",
            fix=fix,
        )


def _find_structure(text: str, tokens: list[Token]) -> Iterator[Problem]:
    words = [token.token_type.name for token in tokens]
    if "SEMICOLON" in words:
        yield _forbidden(text, "has a semicolon", _ONE_VALUE, "Remove it.")
    for position, word in enumerate(words):
        if word in {"SELECT", "WITH", "FROM"} and (
            position == 0 or words[position - 1] == "L_PAREN"
        ):
            yield _forbidden(
                text,
                "has a subquery",
                (
                    "Its result depends on the table's contents at the time; "
                    f"{_REPLAY[0].lower()}{_REPLAY[1:]}"
                ),
                "Use enrich to read the other table.",
            )
            return
        if word == "OVER":
            yield _forbidden(
                text, "has a window function", _ONE_VALUE, "Use a window output."
            )
            return
        if _is_parameter(words, position):
            yield _forbidden(
                text,
                f"has a parameter at character {tokens[position].start + 1}",
                "Nothing supplies a value for it.",
                "Write the value itself.",
            )
            return


def _is_parameter(words: list[str], position: int) -> bool:
    if words[position] == "COLON":
        # A colon after a name belongs to a type, as in cast(a AS struct<x:int>).
        return position == 0 or words[position - 1] not in {"VAR", "IDENTIFIER"}
    return words[position] in {"PARAMETER", "PLACEHOLDER", "L_BRACE", "BLOCK_START"}


def _find_functions(text: str, tokens: list[Token]) -> Iterator[Problem]:
    for position, token in enumerate(tokens):
        name = token.text
        kind = token.token_type.name
        if kind in {"STRING", "NUMBER"} or not name.isidentifier():
            continue
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        called = following is not None and _symbol(text, following) == "("
        if not called and not (name.lower() in _NILADIC and kind != "IDENTIFIER"):
            continue
        if position and tokens[position - 1].token_type.name in {
            "LIKE",
            "ILIKE",
            "RLIKE",
        }:
            # This is the quantifier of LIKE ANY ('a', 'b'), not the aggregate any().
            continue
        refusal = find_refusal(name)
        if _reads_the_clock(tokens, position):
            refusal = find_refusal("now")
        if refusal is not None:
            seen, why, fix = refusal
            at = token.start + 1
            yield _forbidden(
                text,
                f"calls {name.lower()} at character {at}, which {seen}",
                why,
                fix,
                code="PIPELINE_FUNCTION_REFUSED",
            )
        elif kind in {"VAR", "IDENTIFIER"} and not is_known(name):
            yield _forbidden(
                text,
                f"calls {name} at character {token.start + 1}",
                "Spark has no function of this name.",
                suggest(name, list_known(), otherwise="Use a function of Spark SQL."),
                code="PIPELINE_UNKNOWN_FUNCTION",
            )


def _reads_the_clock(tokens: list[Token], position: int) -> bool:
    """Return true for ``unix_timestamp()``, the current time, without a column."""
    return (
        tokens[position].text.lower() == "unix_timestamp"
        and position + 2 < len(tokens)
        and tokens[position + 2].text == ")"
    )


def _find_stars(text: str, tree: Expr) -> Iterator[Problem]:
    from sqlglot import exp  # noqa: PLC0415

    if tree.find(exp.Star):
        yield _forbidden(text, "has a star", _ONE_VALUE, "Name the columns.")


def _find_special_times(text: str, tree: Expr) -> Iterator[Problem]:
    from sqlglot import exp  # noqa: PLC0415

    for literal in tree.find_all(exp.Literal):
        if (
            literal.is_string
            and is_special_time(literal.name)
            and isinstance(literal.parent, exp.Cast | exp.TsOrDsToDate | exp.StrToTime)
        ):
            yield _forbidden(
                text,
                f"casts {literal.name!r}, which Spark reads as the current time",
                _REPLAY,
                "Use a field of the event, or a fixed time.",
                code="PIPELINE_FUNCTION_REFUSED",
            )


def _find_computed_times(text: str, tree: Expr) -> Iterator[Problem]:
    """Find times that Spark computes before it sees an event."""
    from sqlglot import exp  # noqa: PLC0415

    for cast in tree.find_all(exp.Cast, exp.TsOrDsToDate):
        to = cast.args.get("to")
        if (
            (to is None or to.this.name in _TIME_TYPES)
            and not cast.find(exp.Column, exp.Identifier)
            and not isinstance(cast.this, exp.Literal)
        ):
            yield _forbidden(
                text,
                "computes a time from literals only",
                (
                    "The text may be now, today, tomorrow or yesterday, which Spark "
                    f"reads as the current time. {_REPLAY}"
                ),
                "Write the time itself, as in DATE '2024-05-01'.",
                code="PIPELINE_FUNCTION_REFUSED",
            )


def _find_columns(tree: Expr) -> Iterator[str]:
    from sqlglot import exp  # noqa: PLC0415

    for column in tree.find_all(exp.Column, bfs=False):
        yield column.parts[0].name


def _find_compared(tree: Expr) -> Iterator[tuple[str, bool]]:
    from sqlglot import exp  # noqa: PLC0415

    comparisons = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
    for node in tree.find_all(*comparisons, exp.NullSafeEQ, exp.Between, exp.In):
        parts = [
            part.this if isinstance(part, exp.Neg) else part
            for part in node.iter_expressions()
        ]
        for column in parts:
            if isinstance(column, exp.Column) and len(column.parts) == 1:
                for part in parts:
                    if isinstance(part, exp.Literal):
                        yield column.name, part.is_string


def _symbol(text: str, token: Token) -> str:
    """Return the token as written: the text of a string token lacks its quotes."""
    return text[token.start : token.end + 1]


def _refuse(*problems: Problem) -> Inspection:
    return Inspection(problems=problems)


def _unparsable(text: str, seen: str) -> Problem:
    return Problem(
        code="PIPELINE_EXPRESSION_SYNTAX",
        saw=f"{text!r} is not a Spark SQL expression: {seen}.",
        why="Spark could not run it.",
        fix="Correct the expression.",
    )


def _too_deep(text: str) -> Problem:
    return _forbidden(
        f"{text[:60]}…",
        f"has brackets deeper than {DEPTH_MAX}, or more than {TOKENS_MAX} words",
        "It would overflow a stack.",
        "Split it, over several rules or computed columns.",
        code="PIPELINE_EXPRESSION_UNBOUNDED",
    )


def _forbidden(
    text: str, seen: str, why: str, fix: str, code: str = "PIPELINE_EXPRESSION"
) -> Problem:
    return Problem(code=code, saw=f"{text!r} {seen}.", why=why, fix=fix)


def reads_any(text: str, columns: Iterable[str]) -> bool:
    """Tell whether an expression reads one of some columns; case does not count."""
    folded = {name.casefold() for name in columns}
    return any(one.casefold() in folded for one in inspect_expression(text).columns)


def levels_of(compute: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Cut computed columns into runs none of which reads a column of itself.

    Spark computes the columns of a run together.
    """
    levels: list[tuple[str, ...]] = [()]
    for name, text in compute.items():
        if reads_any(text, levels[-1]):
            levels.append(())
        levels[-1] = (*levels[-1], name)
    return levels
