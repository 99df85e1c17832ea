"""Read one JSON document strictly, without losing a digit.

``parse_document`` accepts the texts of RFC 8259, with these restrictions:

- UTF-8 without a byte order mark; the top level is an object;
- no name twice in one object, compared after its escapes are resolved;
- no surrogate without its partner, and no NUL character, in any text or name;
- at most ``DEPTH_MAX`` objects and arrays inside each other;
- numbers of at most ``NUMBER_CHARACTERS_MAX`` characters, with exponents from
  ``-EXPONENT_MAX`` to ``EXPONENT_MAX``.

Work and memory grow with the size of the text only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallyweir.schemas.errors import DecodeError, ReasonCode

DEPTH_MAX = 64
NUMBER_CHARACTERS_MAX = 1_000
EXPONENT_MAX = 1_000

_SHOWN_CHARACTERS = 40
_PATH_CHARACTERS = 200
_BOM = b"\xef\xbb\xbf"
#: A schema registry's header: a zero byte, then four bytes of schema id.
_HEADER_BYTES = 5

_skip_spaces = re.compile(r"[ \t\n\r]*").match
_match_plain = re.compile(r'"([^"\\\x00-\x1f]*+)"').match
_match_text = re.compile(
    r'"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+)"'
).match
_match_text_part = re.compile(
    r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+'
).match
_match_number = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE]([+-]?[0-9]++))?+"
).match
_match_literal = re.compile(r"true|false|null").match
#: What a message shows of a text that is no value.
_match_token = re.compile(r"[^\s,:\[\]{}\"]+|.", re.DOTALL).match

_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_ESCAPED = {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "/": "/",
    "\\": "\\",
    '"': '"',
}
_sub_escapes = re.compile(
    r"\\(?:u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|u([0-9A-Fa-f]{4})|(.))"
).sub
_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written, such as ``-1.50e3``."""

    token: str


Value = dict[str, "Value"] | list["Value"] | str | Number | bool | None
"""A JSON value: objects keep the order of their members."""


class Fault(Exception):  # noqa: N818 - it becomes a DecodeError, with its path
    """A payload, or a value of it, breaks a rule.

    Attributes:
        reason_code: The rule.
        problem: What was seen.
        at: The character where it was seen; None for a value that was read.
        path: The names and indices that lead to it, the innermost first.
    """

    def __init__(
        self, reason_code: ReasonCode, problem: str, at: int | None = None
    ) -> None:
        super().__init__(reason_code, problem, at)
        self.reason_code = reason_code
        self.problem = problem
        self.at = at
        self.path: list[str | int] = []

    def as_error(self, text: str | None = None) -> DecodeError:
        """Return the error for the dead letter.

        Args:
            text: The text that ``at`` counts in.
        """
        parts = [f"field {self._shown_path()}: "] if self.path else []
        parts.append(self.problem)
        if self.at is not None and text is not None:
            parts.append(f" at byte {byte_of(text, self.at)}")
        return DecodeError(self.reason_code, "".join(parts))

    def _shown_path(self) -> str:
        shown = ""
        for part in reversed(self.path):
            if isinstance(part, int):
                shown += f"[{part}]"
            else:
                name = readable(part)
                shown += f".{name}" if shown else name
        return shorten(shown, _PATH_CHARACTERS)


def parse_document(payload: bytes | None) -> dict[str, Value]:
    """Read a payload.

    Raises:
        DecodeError: It breaks a rule of this module.
    """
    text = decode_text(payload)
    try:
        document = parse_text(text)
    except Fault as exc:
        raise exc.as_error(text) from None
    if not isinstance(document, dict):
        raise DecodeError(
            ReasonCode.WRONG_TYPE,
            f"expected an object at the top level, got {show(document)}",
        )
    return document


def parse_text(text: str) -> Value:
    """Read a text that is one value of any kind.

    Raises:
        Fault: It breaks a rule of this module.
    """
    value, at = read_value(text, _spaces_end(text, 0), 0)
    _require_end(text, at)
    return value


def decode_text(payload: bytes | None) -> str:
    """Return a payload's characters.

    Raises:
        DecodeError: It is empty, or not UTF-8, or it begins with a byte order mark.
    """
    if not payload:
        raise DecodeError(
            ReasonCode.EMPTY_PAYLOAD, "a tombstone" if payload is None else "no bytes"
        )
    if payload.startswith(_BOM):
        raise DecodeError(
            ReasonCode.MALFORMED, "a byte order mark at byte 0; send UTF-8 without it"
        )
    if payload[0] == 0 and payload[_HEADER_BYTES : _HEADER_BYTES + 1] == b"{":
        raise DecodeError(
            ReasonCode.MALFORMED,
            "a schema registry's header is in front of the JSON text",
        )
    try:
        return payload.decode()
    except UnicodeDecodeError as exc:
        raise DecodeError(
            ReasonCode.MALFORMED,
            f"not UTF-8: {payload[exc.start : exc.start + 4].hex(' ')} "
            f"at byte {exc.start}",
        ) from exc


def read_value(text: str, at: int, depth: int) -> tuple[Value, int]:
    """Read one value.

    Args:
        text: The document.
        at: Where the value begins; no spaces are skipped before it.
        depth: The number of objects and arrays around it.

    Returns:
        The value, and the place behind it.

    Raises:
        Fault: No value begins there, or it breaks a rule.
    """
    first = text[at : at + 1]
    if first == '"':
        return read_text(text, at)
    if first == "{":
        return _read_object(text, at, depth + 1)
    if first == "[":
        return _read_array(text, at, depth + 1)
    number = _match_number(text, at)
    if number is not None:
        return _checked_number(number), number.end()
    literal = _match_literal(text, at)
    if literal is None:
        raise Fault(ReasonCode.MALFORMED, f"no value but {_token(text, at)}", at)
    return _LITERALS[literal[0]], literal.end()


def read_text(text: str, at: int) -> tuple[str, int]:
    """Read one text or name; see ``read_value``."""
    plain = _match_plain(text, at)
    if plain is not None:
        return plain[1], plain.end()
    escaped = _match_text(text, at)
    if escaped is None:
        raise _broken_text(text, at)
    return unescape(escaped[1], at), escaped.end()


def read_name(text: str, at: int) -> tuple[str, int]:
    """Read a member's name and its colon.

    Returns:
        The name, and the place where the value begins.
    """
    if text[at : at + 1] != '"':
        raise Fault(ReasonCode.MALFORMED, f"no name but {_token(text, at)}", at)
    name, at = read_text(text, at)
    at = _spaces_end(text, at)
    if text[at : at + 1] != ":":
        raise Fault(ReasonCode.MALFORMED, f"no colon but {_token(text, at)}", at)
    return name, _spaces_end(text, at + 1)


def after_item(text: str, at: int, closing: str) -> tuple[bool, int]:
    """Read what follows an item: a comma, or the closing bracket.

    Returns:
        Whether another item follows, and the place where it begins, or the place
        behind the bracket.
    """
    at = _spaces_end(text, at)
    following = text[at : at + 1]
    if following == ",":
        return True, _spaces_end(text, at + 1)
    if following == closing:
        return False, at + 1
    raise Fault(
        ReasonCode.MALFORMED, f"no comma or {closing} but {_token(text, at)}", at
    )


def begin_items(text: str, at: int, closing: str) -> tuple[bool, int]:
    """Step behind an opening bracket; see ``after_item``."""
    at = _spaces_end(text, at + 1)
    if text[at : at + 1] == closing:
        return False, at + 1
    return True, at


def unescape(raw: str, at: int = 0) -> str:
    """Resolve the escapes of a text that follows the grammar.

    Raises:
        Fault: An escape is half a surrogate pair, or a NUL character.
    """

    def resolve(found: re.Match[str]) -> str:
        high, low, single, short = found.groups()
        if short is not None:
            return _ESCAPED[short]
        if single is None:
            offset = (int(high, 16) - _FIRST_SURROGATE) << 10
            return chr(0x10000 + offset + int(low, 16) - 0xDC00)
        code = int(single, 16)
        if code == 0:
            raise Fault(ReasonCode.MALFORMED, "a NUL character in a text", at)
        if _FIRST_SURROGATE <= code <= _LAST_SURROGATE:
            raise Fault(ReasonCode.MALFORMED, f"half a surrogate pair {found[0]}", at)
        return chr(code)

    return _sub_escapes(resolve, raw)


def byte_of(text: str, at: int) -> int:
    """Return the byte at which a character begins."""
    return len(text[:at].encode())


def show(value: Value) -> str:
    """Write a value for a message, shortened."""
    match value:
        case Number():
            return shorten(value.token)
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return readable(value, quote='"')
        case None:
            return "null"
        case _:
            return "true" if value else "false"


def readable(text: str, quote: str = "") -> str:
    """Write a text for a message, shortened, without characters that do not print."""
    cut = text[: _SHOWN_CHARACTERS + 1]
    safe = "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in cut
    )
    return f"{quote}{shorten(safe)}{quote}"


def shorten(text: str, limit: int = _SHOWN_CHARACTERS) -> str:
    """Cut a text for a message."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def _read_object(text: str, at: int, depth: int) -> tuple[dict[str, Value], int]:
    _require_depth(depth, at)
    members: dict[str, Value] = {}
    more, at = begin_items(text, at, "}")
    while more:
        begin = at
        name, at = read_name(text, at)
        try:
            _require_new(name, members, begin)
            members[name], at = read_value(text, at, depth)
        except Fault as exc:
            exc.path.append(name)
            raise
        more, at = after_item(text, at, "}")
    return members, at


def _require_new(name: str, members: dict[str, Value], at: int) -> None:
    if name in members:
        raise Fault(ReasonCode.DUPLICATE_KEY, "the name is there twice", at)


def _read_array(text: str, at: int, depth: int) -> tuple[list[Value], int]:
    _require_depth(depth, at)
    items: list[Value] = []
    more, at = begin_items(text, at, "]")
    while more:
        try:
            item, at = read_value(text, at, depth)
        except Fault as exc:
            exc.path.append(len(items))
            raise
        items.append(item)
        more, at = after_item(text, at, "]")
    return items, at


def _checked_number(found: re.Match[str]) -> Number:
    token, exponent = found[0], found[1]
    if len(token) > NUMBER_CHARACTERS_MAX:
        raise Fault(
            ReasonCode.OUT_OF_RANGE,
            f"a number of {len(token):,} characters, of which "
            f"{NUMBER_CHARACTERS_MAX:,} are read: {shorten(token)}",
            found.start(),
        )
    if exponent is not None and abs(int(exponent)) > EXPONENT_MAX:
        raise Fault(
            ReasonCode.OUT_OF_RANGE,
            f"an exponent beyond {EXPONENT_MAX:,}: {shorten(token)}",
            found.start(),
        )
    return Number(token)


def _require_depth(depth: int, at: int) -> None:
    if depth > DEPTH_MAX:
        raise Fault(
            ReasonCode.OUT_OF_RANGE, f"nested in more than {DEPTH_MAX} levels", at
        )


def _require_end(text: str, at: int) -> None:
    at = _spaces_end(text, at)
    if at != len(text):
        raise Fault(
            ReasonCode.TRAILING_BYTES,
            f"the document is followed by {_token(text, at)}",
            at,
        )


def _spaces_end(text: str, at: int) -> int:
    found = _skip_spaces(text, at)
    assert found is not None, "no spaces are matched as well"
    return found.end()


def _token(text: str, at: int) -> str:
    found = _match_token(text, at)
    return "the end" if found is None else readable(found[0])


def _broken_text(text: str, at: int) -> Fault:
    part = _match_text_part(text, at)
    assert part is not None, "a text begins with its quotation mark"
    stop = part.end()
    if stop == len(text):
        return Fault(ReasonCode.MALFORMED, "a text without its end", at)
    if text[stop] == "\\":
        return Fault(
            ReasonCode.MALFORMED, f"no escape: {readable(text[stop : stop + 6])}", stop
        )
    return Fault(
        ReasonCode.MALFORMED,
        f"a control character in a text: {readable(text[stop])}",
        stop,
    )
