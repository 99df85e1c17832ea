"""One JSON document in many spellings, and documents that differ in one value."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random

_SPACES = ("", " ", "\n", "\t \r")
_BMP = 0x10000


def spelled(value: object, source: Random) -> str:
    """Write a value by a spelling of spaces, order, numbers and escapes."""
    space = source.choice(_SPACES)
    match value:
        case dict():
            members = [*value.items()]
            source.shuffle(members)
            inside = ",".join(
                f"{space}{_text(name, source)}{space}:{spelled(one, source)}"
                for name, one in members
            )
            return f"{space}{{{inside}{space}}}{space}"
        case list():
            inside = ",".join(spelled(one, source) for one in value)
            return f"{space}[{inside}]{space}"
        case str():
            return f"{space}{_text(value, source)}{space}"
        case bool() | None:
            return f"{space}{json.dumps(value)}{space}"
    assert isinstance(value, int | float | Decimal), value
    number = Decimal(str(value))
    power = source.randrange(4)
    scaled = f"{number.scaleb(power):f}e-{power}"
    return f"{space}{source.choice([f'{number:f}', _longer(number), scaled])}{space}"


def changed(document: dict[str, object], source: Random) -> dict[str, object]:
    """Return a document with one other value, which is no ID and no time."""
    amount = document["amount"]
    assert isinstance(amount, Decimal), amount
    return document | source.choice(
        [
            {"amount": amount + Decimal("0.01")},
            {"paid": not document["paid"]},
            {"tags": ["a", {"b": 1, "c": None}]},
            {"tags": [{"b": 1}, "a"]},
            {"note": f"{document['note']} "},
            {"coupon": None},
        ]
    )


def _longer(number: Decimal) -> str:
    text = f"{number:f}"
    return f"{text}0" if "." in text else f"{text}.0"


def _text(text: str, source: Random) -> str:
    return f'"{"".join(_character(one, source) for one in text)}"'


def _character(one: str, source: Random) -> str:
    written = json.dumps(one, ensure_ascii=False)[1:-1]
    if one == "/":
        written = source.choice(["/", "\\/"])
    if source.random() < 0.9:
        return written
    if ord(one) < _BMP:
        return f"\\u{ord(one):04{source.choice('xX')}}"
    return json.dumps(one)[1:-1]
