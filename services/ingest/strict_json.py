"""Parse JSON as strictly as its standard, within limits of depth and size.

Python's parser takes the last of two equal keys, turns large numbers into infinity,
accepts half a surrogate pair, and follows any nesting. In each of these cases two
programs could read one text differently, so this module refuses it.
"""

from __future__ import annotations

import json
import math
from typing import NoReturn

from tallyweir.services.process.refusals import RefusedError

DEPTH_MAX = 32
ELEMENTS_MAX = 50_000
DIGITS_MAX = 40

Json = dict[str, object] | list[object] | str | int | float | bool | None


def parse_json(body: bytes) -> Json:
    """Read a JSON text.

    Raises:
        RefusedError: ``JSON_MALFORMED`` or ``JSON_TOO_COMPLEX``, whatever the bytes.
    """
    try:
        value: Json = _DECODER.decode(body.decode("utf-8"))
    except RecursionError as exc:
        raise _too_complex(f"It is nested deeper than {DEPTH_MAX}.") from exc
    except ValueError as exc:
        # The parser's message names a place and quotes at most a few characters.
        raise _malformed(f"The body is not JSON: {exc}.") from exc
    # The numbers of brackets and commas are upper bounds of depth and elements, and
    # only an escape can make a text that ``_check_text`` refuses. So most bodies need
    # no check of each value.
    brackets = body.count(b"[") + body.count(b"{")
    if (
        brackets > DEPTH_MAX
        or brackets + body.count(b",") >= ELEMENTS_MAX
        or b"\\u" in body
    ):
        _check_values(value)
    return value


def _check_values(value: Json) -> None:
    """Check depth, number of elements and every text, without recursion."""
    elements = 0
    waiting: list[tuple[object, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        elements += 1
        if elements > ELEMENTS_MAX:
            raise _too_complex(f"It has more than {ELEMENTS_MAX:,} values.")
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, dict | list):
            if depth > DEPTH_MAX:
                raise _too_complex(f"It is nested deeper than {DEPTH_MAX}.")
            if isinstance(item, dict):
                for name in item:
                    _check_text(name)
                waiting.extend((inner, depth + 1) for inner in item.values())
            else:
                waiting.extend((inner, depth + 1) for inner in item)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _malformed("A text holds the character NUL, which Postgres refuses.")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise _malformed("A text holds half of a surrogate pair.") from exc


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _malformed("An object has the same key twice.")
    return members


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS_MAX:
        raise _malformed(f"A number has more than {DIGITS_MAX} digits.")
    return int(digits)


def _real(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _malformed("A number is larger than any that a double holds.")
    return number


def _no_number(name: str) -> NoReturn:
    raise _malformed(f"{name} is not a number in JSON.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_whole,
    parse_float=_real,
    parse_constant=_no_number,
)


def _malformed(saw: str) -> RefusedError:
    return RefusedError(
        "JSON_MALFORMED",
        status=400,
        saw=saw,
        why="Two programs could read it differently.",
        fix="Send JSON that follows RFC 8259, in UTF-8, with unique keys.",
    )


def _too_complex(saw: str) -> RefusedError:
    return RefusedError(
        "JSON_TOO_COMPLEX",
        status=400,
        saw=saw,
        why="No event of a contract looks like that.",
        fix="Send fewer events at once, or simpler ones.",
    )
