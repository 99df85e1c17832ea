r"""One form for all documents that mean the same, byte for byte.

Of two documents that ``json_text`` accepts, the canonical forms are equal if and only
if the documents have equal values: objects of the same members in any order, arrays of
equal items in the same order, texts of the same characters, numbers of the same value.
``1``, ``1.0`` and ``10e-1`` are one number, and so are ``0`` and ``-0``. A member that
is null differs from a member that is not there.

The form is JSON itself, in UTF-8:

- no spaces; the members of an object ascend by the code points of their names;
- texts escape only the quotation mark, the backslash and the characters below U+0020,
  those as ``\b``, ``\t``, ``\n``, ``\f``, ``\r``, or else as ``\u00xx`` in lower
  case;
- numbers have all their digits, and no zeros that do not count: ``-12.5``, ``0.001``,
  ``1500``. Numbers below 1e-40 or from 1e40 on are written with an exponent, as
  ``1.25e-41`` and ``4e40``.
"""

from __future__ import annotations

from dataclasses import dataclass
from json.encoder import encode_basestring as canonical_string

from tallyweir.schemas.formats.json.json_text import Number, Value, parse_document

__all__ = ["Digits", "canonical", "canonical_string", "canonical_text", "digits_of"]

#: A number whose first digit stands for a power of ten within these is written plainly.
PLAIN_MAX = 40
_NAMED = {None: "null", True: "true", False: "false"}


@dataclass(frozen=True, slots=True)
class Digits:
    """A number's exact value: ``digits * 10**exponent``, negative or not.

    Attributes:
        is_negative: False for zero.
        digits: Without zeros at either end; empty for zero.
        exponent: Zero for zero.
    """

    is_negative: bool
    digits: str
    exponent: int


def canonical(payload: bytes) -> bytes:
    """Return the canonical form of a document.

    Raises:
        DecodeError: ``json_text`` does not accept it.
    """
    return canonical_text(parse_document(payload)).encode()


def canonical_text(value: Value) -> str:
    """Return the canonical form of a value that was read."""
    match value:
        case str():
            return canonical_string(value)
        case Number():
            return canonical_number(value.token)
        case dict():
            members = (
                f"{canonical_string(name)}:{canonical_text(value[name])}"
                for name in sorted(value)
            )
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(map(canonical_text, value))}]"
        case _:
            return _NAMED[value]


def canonical_number(token: str) -> str:
    """Return the canonical form of a number's token."""
    number = digits_of(token)
    digits, exponent = number.digits, number.exponent
    if not digits:
        return "0"
    sign = "-" if number.is_negative else ""
    power = len(digits) + exponent - 1
    if not -PLAIN_MAX <= power < PLAIN_MAX:
        point = "." if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{point}{digits[1:]}e{power}"
    if exponent >= 0:
        return f"{sign}{digits}{'0' * exponent}"
    if power >= 0:
        return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"
    return f"{sign}0.{'0' * (-power - 1)}{digits}"


def digits_of(token: str) -> Digits:
    """Return the exact value of a number's token."""
    mantissa, _, exponent = token.lower().partition("e")
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    found = (whole + fraction).lstrip("0")
    digits = found.rstrip("0")
    if not digits:
        return Digits(is_negative=False, digits="", exponent=0)
    return Digits(
        is_negative=token.startswith("-"),
        digits=digits,
        exponent=int(exponent or 0) - len(fraction) + len(found) - len(digits),
    )
