"""Documents as producers write them, in all ways that JSON leaves, and with slips."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random

FIELDS = {
    "order_id": "text not null",
    "customer.id": "bigint",
    "customer.address.city": "text",
    "amount": "numeric(12,2) not null",
    "wide": "numeric(38,20)",
    "quantity": "integer",
    "small": "smallint",
    "placed_at": "timestamptz",
    "seen_ms": "timestamptz epoch ms",
    "seen_ns": "timestamp epoch ns truncated",
    "local": "timestamp truncated",
    "day": "date",
    "is_gift": "boolean",
    "score": "double precision",
    "ratio": "real",
    "ref": "uuid",
    "raw": "bytea",
    "tags": "jsonb",
    "weight": "numeric",
    "price": "numeric(10,3) from text",
    "units": "bigint from text",
    "unscaled": "numeric(9,2) from base64",
    "born": "date epoch days",
}
_TEXTS = ["", "a", "leave at the door", "Zoë", "\U0001f4ca", 'say "hi"', "a\\b\n", "/"]
_ODD_TEXTS = ["\x7f", "\u2028", "x" * 300, "{[,:]}", "\\", '\\"', "null", "\ue000"]
_NUMBERS = ["0", "-0", "0.0", "1", "-1.0", "1e2", "1.50", "120e-1", "12345678901234567"]
_EDGES = [
    *("32767", "-32769", "2147483648", "-2147483648", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775809", "99999999999999999999"),
    *("9999999999.99", "10000000000.00", "0.001", "0.100000000000000000000", "1e-5"),
    *("0.1", "0.30000000000000004", "1.7976931348623157e308", "1e309", "5e-324"),
    *("1.00000005960464477539062500000001", "3.4028236e38", "1e400", "1E+2", "1e-400"),
    *("1700000000000", "1700000000000.5", "1700000000123456789", "253402300800000"),
    *("9007199254740993", "123456789.123456789", "-62135596800000", "16777217"),
]
_NOT_NUMBERS = ["01", "1.", ".5", "+1", "1e", "NaN", "Infinity", "0x1", "--1", "1e9999"]
_TIMES = [
    *(
        "2026-11-26T08:16:09Z",
        "2026-11-26T08:16:09.123Z",
        "2026-11-26T08:16:09.1234567Z",
    ),
    *("2026-11-26T08:16:09.123456+01:00", "2026-11-26 08:16:09-05:30", "2024-02-29"),
    *(
        "2026-11-26T08:16Z",
        "2026-11-26T08:16:09",
        "2026-11-26T08:16:09.5",
        "2023-02-29",
    ),
    *(
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59.999999Z",
        "2026-11-26T24:00:00Z",
    ),
    *("2026-11-26T08:16:60Z", "1969-12-31T23:59:59.9999999", "2026-1-26T08:16:09Z"),
    *("2026-11-26T08:16:09+24:00", "2026-11-26T08:16:09.Z", "0000-01-01", "2026-13-01"),
]
_UUIDS = [
    "0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3d",
    "0B0F1C1E-7D0A-4C7C-9D2B-5A0D5F1B2C3D",
    "0b0f1c1e7d0a4c7c9d2b5a0d5f1b2c3d",
    "0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3g",
]
_BASE64 = ["", "AP8=", "QQ==", "QR==", "QQ", "a b=", "+/8="]
_BROKEN = [
    *(r'"\ud83d"', r'"\udcca\ud83d"', r'"\u0000"', r'"\x"', '"\t"', '"', "tru", "nul"),
    *("{", "[", "[1,]", '{"a":1,}', '{"a":1,"a":1}', '{"a":1,"\\u0061":2}', "''"),
]


@dataclass(frozen=True, slots=True)
class Token:
    """A number as it shall be written."""

    text: str


class DocumentMaker:
    """Makes documents at random."""

    def __init__(self, seed: int, *, slips: float) -> None:
        """Prepare.

        Args:
            seed: Of all choices.
            slips: How often a value is one that its field does not hold.
        """
        self.source = Random(seed)
        self._slips = slips

    def make(self) -> dict[str, object]:
        """Make a document's value."""
        choose = self.source.random
        makers: dict[str, Callable[[], object]] = {
            "order_id": self._text,
            "customer": self._customer,
            "amount": lambda: self._number(["149.90", "3.00", "17", "0.5"]),
            "wide": lambda: self._number(["1.5", "0.00000000000000000001"]),
            "quantity": lambda: self._number(["1", "20"]),
            "small": lambda: self._number(["-7", "300"]),
            "placed_at": lambda: self._of(_TIMES[:6]),
            "seen_ms": lambda: self._number(["1700000000000", "-1"]),
            "seen_ns": lambda: self._number(["1700000000123456000", "-1"]),
            "local": lambda: self._of(_TIMES[7:9]),
            "day": lambda: self._of(["2026-11-26", "2024-02-29"]),
            "is_gift": lambda: choose() < 0.5,
            "score": lambda: self._number(["0.5", "0.449491", repr(choose())]),
            "ratio": lambda: self._number(["0.5", "0.449491", repr(choose())]),
            "ref": lambda: self._of(_UUIDS[:2]),
            "raw": lambda: self._of(_BASE64[:3]),
            "tags": self._any,
            "weight": lambda: self._number(["0.5", "-1.50e300", repr(choose())]),
            "price": lambda: self._of(["149.90", "-3", "1e2"]),
            "units": lambda: self._of([*_EDGES[:5], "-7"]),
            "unscaled": lambda: self._of([*_BASE64[1:3], "Oo4=", "O5rKAA==", "/w=="]),
            "born": lambda: self._number(["0", "-719162", "2932896", "2932897"]),
            "coupon": self._any,
            "źródło": self._any,
        }
        names = list(makers)
        if choose() < 0.4:
            self.source.shuffle(names)
        lacking = self.source.choice([0.0, 0.0, 0.05, 0.5])
        return {
            name: self._value(makers[name])
            for name in names
            if choose() >= lacking or name in {"order_id", "amount"}
        }

    def write(self, value: object) -> bytes:
        """Write a value, in one style."""
        is_ascii = self.source.random() < 0.3
        spaces = self.source.choice(["", "", "", " ", "\n\t "])
        return self._write(value, spaces, is_ascii=is_ascii).encode()

    def damage(self, payload: bytes) -> bytes:
        """Break a payload, or at least change it."""
        source, size = self.source, len(payload)
        at = source.randrange(size)
        odd = source.choice([b'"', b"\\", b",", b"{", b"\xff", b"\xc3", b"0"])
        before = source.choice([b"\xef\xbb\xbf", b" ", b"\x00", b"["])
        behind = source.choice([b"}", b" ", b"\n", b"\x00", payload])
        return source.choice(
            [
                payload[:at],
                payload[:at] + payload[at + 1 :],
                payload[:at] + payload[source.randrange(size) :],
                payload[:at] + bytes([source.randrange(256)]) + payload[at + 1 :],
                payload[:at] + odd + payload[at:],
                before + payload,
                payload + behind,
            ]
        )

    def repeat(self, value: object) -> object:
        """Return an equal value: other orders, other forms of the numbers."""
        if isinstance(value, dict):
            items = list(value.items())
            self.source.shuffle(items)
            return {name: self.repeat(one) for name, one in items}
        if isinstance(value, list):
            return [self.repeat(one) for one in value]
        if isinstance(value, Token):
            return Token(self._other_form(value.text))
        return value

    def _other_form(self, text: str) -> str:
        try:
            sign, digits, exponent = Decimal(text).as_tuple()
        except ArithmeticError:
            return text
        assert isinstance(exponent, int)
        moved = self.source.randrange(3)
        shown = "".join(map(str, digits)) + "0" * moved
        return f"{'-' if sign else ''}{int(shown)}e{exponent - moved}"

    def _value(self, make: Callable[[], object]) -> object:
        chance = self.source.random()
        if chance < 0.04:
            return None
        return self._slip() if chance < 0.04 + self._slips else make()

    def _slip(self) -> object:
        source = self.source
        match source.randrange(6):
            case 0:
                return Token(source.choice(_NOT_NUMBERS))
            case 1:
                return Token(source.choice(_BROKEN))
            case 2:
                return self._of([*_TIMES, *_UUIDS, *_BASE64])
            case 3:
                return self._number(_EDGES)
            case 4:
                return self._text()
            case _:
                return self._any()

    def _customer(self) -> object:
        made: dict[str, object] = {"id": self._number(["7", "1234567"])}
        if self.source.random() < 0.5:
            made["address"] = {"city": self._text(), "zip": self._text()}
        if self.source.random() < 0.2:
            made["segment"] = self._any()
        return made

    def _any(self, depth: int = 0) -> object:
        match self.source.randrange(6 if depth < 3 else 4):
            case 0:
                return self._text()
            case 1:
                return self._number([*_NUMBERS, *_EDGES])
            case 2:
                return self._of([True, False, None])
            case 3:
                return [] if self.source.random() < 0.5 else {}
            case 4:
                return [self._any(depth + 1) for _ in range(self.source.randrange(4))]
            case _:
                names = ["b", "a", "ä", "\U0001f4ca", "", "aa"]
                count = self.source.randrange(4)
                return {self._of(names): self._any(depth + 1) for _ in range(count)}

    def _text(self) -> object:
        is_odd = self.source.random() < 0.05
        return self._of(_ODD_TEXTS if is_odd else _TEXTS)

    def _number(self, usual: list[str]) -> Token:
        chance = self.source.random()
        if chance < 0.03:
            return Token(self.source.choice(_NUMBERS))
        return Token(self.source.choice(_EDGES if chance > 0.99 else usual))

    def _of(self, values: Sequence[object]) -> object:
        return self.source.choice(values)

    def _write(self, value: object, spaces: str, *, is_ascii: bool) -> str:
        def write(one: object) -> str:
            return self._write(one, spaces, is_ascii=is_ascii)

        if isinstance(value, Token):
            return value.text
        if isinstance(value, dict):
            members = (
                f"{write(name)}:{spaces}{write(one)}" for name, one in value.items()
            )
            return f"{{{spaces}{f',{spaces}'.join(members)}}}"
        if isinstance(value, list):
            return f"[{f'{spaces},'.join(map(write, value))}]"
        return json.dumps(value, ensure_ascii=is_ascii)
