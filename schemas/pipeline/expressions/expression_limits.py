"""Bounds the memory and time that an expression can take for one event.

A value may be at most a hundred times as large as its event: arguments that multiply
must be literals. Arguments that decide how long a search takes, such as patterns, must
be literals too, so that the file sets them and no event can.

As for functions, the checks look at the tokens, which are as the user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tallyweir.schemas.pipeline.checks.problems import Problem
from tallyweir.schemas.pipeline.expressions.spark_functions import (
    ARGUMENTS,
    GROWING,
    OPTIONS,
    Argument,
)
from tallyweir.schemas.pipeline.expressions.text_patterns import (
    PatternError,
    is_slow_like,
    is_slow_regex,
)

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

#: Most times that a value may be as large as its event.
GROWTH_MAX = 100
#: Most characters or elements that a literal may ask for.
LENGTH_MAX = 10_000
#: Most characters of a computed separator; for an event with a longer one, the
#: expression has no value (``strict_nodes.py``).
SEPARATOR_LENGTH_MAX = 10
#: Most digits: a decimal of Spark has no more.
DIGITS_MAX = 38
#: Deeper and longer expressions overflow a stack, here or in Spark.
DEPTH_MAX = 50
TOKENS_MAX = 5_000
#: Deepest nesting of functions that Spark expands with a part twice: each doubles what
#: it has to read.
DOUBLINGS_MAX = 5

#: Assumed characters of an event, for the share of a literal.
_EVENT = 1_000_000

_TEXT_TOKENS = frozenset({"STRING", "RAW_STRING"})
_OPERATORS = {
    "LIKE": Argument.LIKE,
    "ILIKE": Argument.LIKE,
    "RLIKE": Argument.REGEX,
}
_PATTERNS = {
    Argument.LIKE: is_slow_like,
    Argument.REGEX: is_slow_regex,
    Argument.FAST_REGEX: is_slow_regex,
}
_DOUBLE = frozenset({"nullif", "nullifzero", "regexp_substr"})
_QUANTIFIERS = frozenset({"all", "any", "some"})
#: Tokens that end the pattern of LIKE; any other token would compute it.
_AFTER_PATTERN = frozenset(
    {"R_PAREN", "COMMA", "AND", "OR", "ESCAPE", "THEN", "WHEN", "ELSE", "END", "EQ"}
)
_DECIMAL = re.compile(r"\b(dec|decimal|numeric)\b", re.IGNORECASE)
#: Widths, precisions and positions in a format of Java.
_FORMAT_PART = re.compile(r"%([0-9]+\$|<)?[-#+ 0,(]*([0-9]*)(?:\.([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function: its name, its place, and the tokens of each argument."""

    name: str
    start: int
    name_end: int
    arguments: tuple[tuple[Token, ...], ...]


def find_calls(tokens: Sequence[Token]) -> Iterator[Call]:
    """Find every name followed by brackets, with the arguments between the commas."""
    for position, (token, following) in enumerate(pairwise(tokens)):
        if following.token_type.name != "L_PAREN" or not token.text.isidentifier():
            continue
        if token.token_type.name not in _TEXT_TOKENS:
            arguments = _split(tokens, position + 2)
            yield Call(token.text.lower(), token.start, token.end + 1, arguments)


def find_excesses(tokens: Sequence[Token]) -> Iterator[Problem]:
    """Find parts that could take unbounded memory or time for one event.

    The problems name the call; the caller puts the expression before it.
    """
    for call in find_calls(tokens):
        yield from _check_arguments(call)
    yield from _check_pattern_operators(tokens)
    growth = _growth(tokens)
    if growth > GROWTH_MAX:
        yield _excess(
            f"may make a value {growth:,.0f} times as large as the event",
            f"One event could take all memory; {GROWTH_MAX} times is the limit.",
            "Repeat fewer times, or use a shorter replacement.",
        )
    doublings = _doublings(tokens)
    if doublings > DOUBLINGS_MAX:
        yield _excess(
            f"nests {doublings} calls of nullif, regexp_substr or BETWEEN",
            (
                "Each level doubles the time of what it contains; the limit is "
                f"{DOUBLINGS_MAX}."
            ),
            "Use CASE or AND to evaluate them one after the other.",
        )


def is_too_deep(tokens: Sequence[Token]) -> bool:
    """Return whether an expression is too long, or its brackets are too deep."""
    depth = deepest = 0
    for token in tokens:
        depth += _depth_change(token)
        deepest = max(deepest, depth)
    return deepest > DEPTH_MAX or len(tokens) > TOKENS_MAX


def literal_text(tokens: Sequence[Token]) -> str | None:
    """Return the text of a literal, possibly written in parts; None otherwise."""
    if not tokens or any(one.token_type.name not in _TEXT_TOKENS for one in tokens):
        return None
    return "".join(one.text for one in tokens)


def literal_number(tokens: Sequence[Token]) -> int | None:
    """Return the value of a whole-number literal; None for anything else."""
    names = [one.token_type.name for one in tokens]
    if names not in (["NUMBER"], ["DASH", "NUMBER"]):
        return None
    if not tokens[-1].text.isdecimal():
        return None
    return int(tokens[-1].text) * (-1 if len(names) == 2 else 1)  # noqa: PLR2004


def _check_arguments(call: Call) -> Iterator[Problem]:
    if call.name == "sequence":
        yield from _check_sequence(call)
    if call.name == "levenshtein" and len(call.arguments) < 3:  # noqa: PLR2004
        yield _excess(
            f"calls levenshtein at character {call.start + 1} without a threshold",
            "Without one it takes the product of the lengths of both texts.",
            "Give it a third argument, such as levenshtein(a, b, 10).",
        )
    for index, kind in ARGUMENTS.get(call.name, {}).items():
        if index < len(call.arguments):
            yield from _check_argument(call, index, kind)


def _check_argument(call: Call, index: int, kind: Argument) -> Iterator[Problem]:
    given = call.arguments[index]
    text = literal_text(given)
    place = f"argument {index + 1} of {call.name} at character {call.start + 1}"
    if kind in {Argument.COUNT, Argument.LENGTH, Argument.DIGITS}:
        # format_number accepts a format text as well.
        if kind is not Argument.DIGITS or text is None:
            yield from _check_number(place, given, kind)
    elif kind is Argument.OPTIONS:
        yield from _check_options(place, given)
    elif text is None and kind is not Argument.SEPARATOR:
        yield _excess(
            f"computes {place}",
            "An event could choose a value that takes unlimited memory or time.",
            "Write the value as one literal.",
        )
    elif text is not None and kind in _PATTERNS:
        yield from _check_pattern(place, text, kind)
    elif text is not None:
        yield from _check_text(place, text, kind)


def _check_number(
    place: str, given: tuple[Token, ...], kind: Argument
) -> Iterator[Problem]:
    number = literal_number(given)
    most = DIGITS_MAX if kind is Argument.DIGITS else LENGTH_MAX
    if number is None or abs(number) > most:
        yield _excess(
            f"needs a whole number up to {most} as {place}",
            "It decides how much memory or time one event takes.",
            f"Write the number itself, {most} at most.",
        )


def _check_text(place: str, text: str, kind: Argument) -> Iterator[Problem]:
    if kind is Argument.FORMAT and _format_width(text) > LENGTH_MAX:
        yield _excess(
            f"uses as {place} a format with a width of more than {LENGTH_MAX}",
            "It decides how much memory one event takes.",
            "Write a smaller width.",
        )
    elif kind is Argument.TYPES and _DECIMAL.search(text):
        yield _excess(
            f"uses the type decimal as {place}",
            "A short text such as 1e-600000000 would keep Spark computing for hours.",
            "Read it as string, and convert it by try_to_number.",
        )


def _check_sequence(call: Call) -> Iterator[Problem]:
    numbers = [literal_number(one) for one in call.arguments]
    known = [one for one in numbers if one is not None]
    if len(known) == len(numbers) and len(known) > 1:
        step = abs(known[2]) if len(known) > 2 else 1  # noqa: PLR2004
        if abs(known[1] - known[0]) <= LENGTH_MAX * step:
            return
    yield _excess(
        (
            f"calls sequence at character {call.start + 1} with bounds that are not "
            f"whole numbers at most {LENGTH_MAX} steps apart"
        ),
        "One event could ask for more elements than memory can hold.",
        "Write both bounds as numbers, or compare with the bounds instead.",
    )


def _check_options(place: str, given: tuple[Token, ...]) -> Iterator[Problem]:
    calls = list(find_calls(given))
    texts = [literal_text(one) for one in calls[0].arguments] if calls else []
    plain = len(calls) == 1 and given[0].text.lower() == "map"
    names = [None if one is None else one.lower() for one in texts[::2]]
    if plain and None not in texts and all(name in OPTIONS for name in names):
        return
    seen = next((name for name in names if name not in OPTIONS), None)
    yield _excess(
        f"has as {place} "
        + (f"the option {seen!r}" if plain and seen else "no map of literals"),
        "Options may open files, load classes, take memory, or read what belongs to "
        "the session.",
        f"Leave it out; these may stay: {', '.join(sorted(OPTIONS))}.",
    )


def _check_pattern_operators(tokens: Sequence[Token]) -> Iterator[Problem]:
    for position, token in enumerate(tokens):
        operator = token.token_type.name
        if operator not in _OPERATORS or _is_call(tokens, position):
            continue
        place = f"pattern of {operator} at character {token.start + 1}"
        for given in _patterns_after(tokens, position + 1):
            text = literal_text(given)
            if text is None:
                yield _excess(
                    f"computes the {place}",
                    "An event could choose a pattern that takes hours.",
                    "Write the pattern as one literal, or use contains, startswith "
                    "or endswith.",
                )
            else:
                yield from _check_pattern(place, text, _OPERATORS[operator])


def _patterns_after(tokens: Sequence[Token], start: int) -> Iterator[tuple[Token, ...]]:
    """Yield the pattern after an operator, or each pattern in brackets."""
    if _opens(tokens, start + 1) and tokens[start].text.lower() in _QUANTIFIERS:
        yield from _split(tokens, start + 2)
        return
    end = start
    while end < len(tokens) and tokens[end].token_type.name in _TEXT_TOKENS:
        end += 1
    if end < len(tokens) and tokens[end].token_type.name not in _AFTER_PATTERN:
        end += 1
    yield tuple(tokens[start:end])


def _check_pattern(place: str, text: str, kind: Argument) -> Iterator[Problem]:
    try:
        if not _PATTERNS[kind](text) or kind is not Argument.FAST_REGEX:
            return
        seen = "has 2 repetitions that may match the same characters"
    except PatternError as exc:
        seen = str(exc)
    yield _excess(
        f"uses as {place} a pattern that {seen}",
        "One event could keep the driver searching for hours.",
        "Begin the pattern with ^, repeat single characters only, or ask several "
        "simpler questions such as contains(…).",
    )


def _format_width(text: str) -> int:
    parts = _FORMAT_PART.findall(text)
    return sum(int(size or 0) for _, *sizes in parts for size in sizes)


def _growth(tokens: Sequence[Token]) -> float:
    """Return how many times as large as its event the largest value may become.

    A name counts as a whole event. A call is as large as its arguments together, times
    its repetitions. Among other parts, the largest counts, unless they are joined.
    """
    sizes, joined, position = [0.0], False, 0
    while position < len(tokens):
        token = tokens[position]
        joined = joined or token.token_type.name == "DPIPE"
        end = position
        if token.token_type.name == "L_PAREN":
            end = _closing(tokens, position)
            sizes.append(_growth(tokens[position + 1 : end]))
        elif token.token_type.name in _TEXT_TOKENS:
            sizes.append(len(token.text) / _EVENT)
        elif _opens(tokens, position + 1):
            end = _closing(tokens, position + 1)
            arguments = _split(tokens, position + 2)
            sizes.append(_call_growth(token.text.lower(), arguments))
        elif token.text.isidentifier():
            sizes.append(1)
        position = end + 1
    return sum(sizes) if joined else max(sizes)


def _call_growth(name: str, arguments: Sequence[Sequence[Token]]) -> float:
    growth = sum(map(_growth, arguments))
    if name == "sequence":
        growth += LENGTH_MAX / _EVENT
    for index, kind in ARGUMENTS.get(name, {}).items():
        given = arguments[index] if index < len(arguments) else ()
        text, number = literal_text(given) or "", abs(literal_number(given) or 0)
        is_text = not given or literal_text(given) is not None
        match kind:
            case Argument.COUNT:
                growth *= max(1, number)
            case Argument.LENGTH:
                growth += number / _EVENT
            case Argument.REPLACEMENT:
                growth *= max(1, len(text))
            case Argument.SEPARATOR:
                growth *= max(1, len(text) if is_text else SEPARATOR_LENGTH_MAX)
            case Argument.FORMAT:
                growth = growth * max(1, text.count("%"))
                growth += _format_width(text) / _EVENT
            case _:
                pass
    return growth * GROWING.get(name, 1)


def _doublings(tokens: Sequence[Token]) -> int:
    """Return how deep functions that Spark doubles are nested."""
    deepest = own = position = 0
    while position < len(tokens):
        name, end = tokens[position].token_type.name, position
        if name == "BETWEEN":
            own = 1
        elif name == "L_PAREN":
            end = _closing(tokens, position)
            before = tokens[position - 1].text.lower() if position else ""
            within = _doublings(tokens[position + 1 : end])
            deepest = max(deepest, within + (before in _DOUBLE))
        position = end + 1
    return deepest + own


def _split(tokens: Sequence[Token], start: int) -> tuple[tuple[Token, ...], ...]:
    """Split the content of brackets, which open before ``start``, at its commas."""
    parts: list[list[Token]] = [[]]
    depth = 1
    for token in tokens[start:]:
        depth += _depth_change(token)
        if depth == 0:
            break
        if depth == 1 and token.token_type.name == "COMMA":
            parts.append([])
        else:
            parts[-1].append(token)
    return tuple(tuple(part) for part in parts if part or len(parts) > 1)


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for position in range(opening, len(tokens)):
        depth += _depth_change(tokens[position])
        if depth == 0:
            return position
    return len(tokens)


def _depth_change(token: Token) -> int:
    return {"L_PAREN": 1, "L_BRACKET": 1, "R_PAREN": -1, "R_BRACKET": -1}.get(
        token.token_type.name, 0
    )


def _is_call(tokens: Sequence[Token], position: int) -> bool:
    """Return true for ``like(a, 'x')``, false for ``a LIKE ('x')``."""
    return _opens(tokens, position + 1) and len(_split(tokens, position + 2)) > 1


def _opens(tokens: Sequence[Token], position: int) -> bool:
    following = tokens[position : position + 1]
    return bool(following) and following[0].token_type.name == "L_PAREN"


def _excess(saw: str, why: str, fix: str) -> Problem:
    return Problem(code="PIPELINE_EXPRESSION_UNBOUNDED", saw=saw, why=why, fix=fix)
