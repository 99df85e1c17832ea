"""Payloads that no well-behaved encoder writes, made straight from a schema's tree.

Avro leaves its writers choices: numbers longer than they need be, blocks of items with
or without their size, decimals with spare bytes. This one takes any of them, prefers
values at the edges, and slips now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tallyweir.schemas.formats.avro.strict_walk import (
    INT_BYTES_MAX,
    LONG_BYTES_MAX,
)
from tallyweir.schemas.schema_tree import (
    INT,
    LONG,
    NANOS_PER_MICRO,
    NUMBER_BOUNDS,
    Enumeration,
    Fixed,
    Mapping,
    Nullable,
    Primitive,
    Record,
    SchemaNode,
    Sequence,
    Union,
)

_TEXTS = [
    b"",
    b"a",
    "äöü".encode(),
    "\U0001f6eb".encode(),
    b"x" * 63,
    b"y" * 64,
    b"z" * 300,
    b"\x00",
]
_NO_TEXTS = [
    b"\xff",
    b"a\xc3",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b"\x80",
    b"\xf0\x9f\x9b",
]
_UUIDS = [
    b"0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3d",
    b"0B0F1C1E-7D0A-4C7C-9D2B-5A0D5F1B2C3D",
    b"0b0f1c1e7d0a4c7c9d2b5a0d5f1b2c3d",
    b"{0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3d}",
    b"urn:uuid:0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3d",
    # Python strips dashes wherever they are.
    b"0-b0f1c1e-7d0a-4c7c-9d2b5a0d5f1b-2c3",
    b"0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3-",
    b"0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b2c3g",
    b"0b0f1c1e-7d0a-4c7c-9d2b-5a0d5f1b\xc3\xa4cc",
    b"0b0f1c1ea7d0aa4c7ca9d2ba5a0d5f1b2c3d",
]


def encoded_number(value: int, spare: int = 0) -> bytes:
    """A zigzag number in its shortest form, and some bytes longer."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while raw > 0x7F:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    found.append(raw)
    for _ in range(spare):
        found[-1] |= 0x80
        found.append(0)
    return bytes(found)


class PayloadMaker:
    """Makes the bytes of values by chance, the same for the same seed."""

    def __init__(self, seed: int, *, slips: float) -> None:
        self._chance = Random(seed)
        self._slips = slips

    def make(self, node: SchemaNode) -> bytes:
        """Make the bytes of one value."""
        match node:
            case Record():
                made = b"".join(self.make(field.node) for field in node.fields)
            case Nullable():
                made = self._nullable(node)
            case Union():
                made = self._union(node)
            case Sequence():
                made = self._blocks(lambda: self.make(node.item))
            case Mapping():
                made = self._blocks(
                    lambda: self._sized(self._text()) + self.make(node.item)
                )
            case Enumeration():
                made = self._number((0, len(node.symbols) - 1), INT_BYTES_MAX)
            case Fixed():
                made = self._fixed(node)
            case Primitive():
                made = self._primitive(node)
        return made

    def _slip(self) -> bool:
        return self._chance.random() < self._slips

    def _primitive(self, node: Primitive) -> bytes:
        match node.logical or node.kind:
            case "boolean":
                found = bytes([2 if self._slip() else self._chance.randrange(2)])
            case "float" | "double":
                found = self._float(4 if node.kind == "float" else 8)
            case "decimal":
                found = self._sized(self._decimal(node.precision, None))
            case "uuid":
                usual = self._chance.random() < 0.5
                one = self._chance.choice(_UUIDS[:1] if usual else _UUIDS)
                found = self._sized(one)
            case "string":
                found = self._sized(self._text())
            case "bytes":
                one = self._chance.randbytes(self._chance.choice([0, 1, 9]))
                found = self._sized(one)
            case "timestamp-nanos" | "local-timestamp-nanos":
                found = self._nanos()
            case logical:
                widest = INT_BYTES_MAX if node.kind == "int" else LONG_BYTES_MAX
                found = self._number(NUMBER_BOUNDS[logical], widest)
        return found

    def _fixed(self, node: Fixed) -> bytes:
        match node.logical:
            case "decimal":
                return self._decimal(node.precision, node.size)
            case "duration":
                return self._count() + self._count() + self._chance.randbytes(4)
            case _:
                return self._chance.randbytes(node.size)

    def _nanos(self) -> bytes:
        step = 1 if self._slip() else NANOS_PER_MICRO
        edges = [0, 1, -1, LONG[1] // 1_000, -(LONG[1] // 1_000)]
        count = self._chance.choice([*edges, self._chance.randint(-(1 << 53), 1 << 53)])
        return encoded_number(count * step)

    def _count(self) -> bytes:
        """Of months or days."""
        highest = (1 << 32) - 1 if self._slip() else INT[1]
        count = self._chance.choice([0, 1, highest, self._chance.randint(0, highest)])
        return count.to_bytes(4, "little")

    def _float(self, width: int) -> bytes:
        # A number that is none, and about which a processor complains.
        signalling = (
            b"\x01\x00\x80\x7f" if width == 4 else b"\x01" + b"\x00" * 5 + b"\xf0\x7f"
        )
        usual = self._chance.random() < 0.9
        return self._chance.randbytes(width) if usual else signalling

    def _number(self, bounds: tuple[int, int], widest: int) -> bytes:
        lowest, highest = bounds
        if self._slip():
            value = self._chance.choice([lowest - 1, highest + 1, -1 << 63])
        elif self._chance.random() < 0.5:
            value = self._chance.choice([lowest, highest, min(lowest + 1, highest)])
        else:
            power = 1 << self._chance.randrange(64)
            value = self._chance.choice([power, power - 1, -power, -power - 1, 0])
        if not self._slip():
            value = min(max(value, lowest), highest)
        shortest = len(encoded_number(value))
        spare = self._chance.choice([0, 0, 0, 1, widest - shortest])
        spare = max(0, min(spare, widest - shortest))
        return encoded_number(value, spare + self._slip())

    def _sized(self, content: bytes) -> bytes:
        size = len(content)
        if self._slip():
            size = self._chance.choice([-1, size + 1, 1 << 31, *LONG])
        spare = self._chance.choice([0, 0, 0, 0, 1, 8])
        return encoded_number(size, spare) + content

    def _text(self) -> bytes:
        return self._chance.choice(_NO_TEXTS if self._slip() else _TEXTS)

    def _decimal(self, precision: int, size: int | None) -> bytes:
        highest = 10**precision - 1 + self._slip()
        value = self._chance.choice([highest, -highest, 0, -1, 127, -128, 255])
        value = self._chance.choice([value, self._chance.randint(-highest, highest)])
        value = min(max(value, -highest), highest)
        shortest = (value ^ (value >> 4_000)).bit_length() // 8 + 1
        wide = self._chance.choice([shortest, shortest + 1, 8, 9, 16, 17, 40])
        width = size or max(shortest, wide)
        found: bytes = value.to_bytes(width, signed=True)
        if size is None and self._slip():
            odd = [b"", b"\x01" + found, b"\xff" + found]
            found = self._chance.choice(odd)
        return found

    def _nullable(self, node: Nullable) -> bytes:
        index = self._chance.randrange(3 if self._slip() else 2)
        spare = self._chance.choice([0, 0, 0, 0, 0, 4])
        found = encoded_number(index, spare + self._slip())
        return found if index == node.null_index else found + self.make(node.item)

    def _union(self, node: Union) -> bytes:
        size = len(node.branches)
        index = self._chance.randrange(size + self._slip())
        found = encoded_number(index, self._chance.choice([0, 0, 0, 4]))
        branch = node.branches[index] if index < size else None
        return found if branch is None else found + self.make(branch)

    def _blocks(self, make_item: Callable[[], bytes]) -> bytes:
        found = b""
        for _ in range(self._chance.choice([0, 1, 1, 2])):
            count = self._chance.choice([1, 1, 2, 3])
            items = b"".join(make_item() for _ in range(count))
            if self._slip():
                count += self._chance.choice([1, 1 << 31, LONG[1]])
            if self._chance.random() < 0.5:
                found += encoded_number(count) + items
            elif self._slip():
                found += encoded_number(LONG[0]) + self._sized(items)
            else:
                found += encoded_number(-count) + self._sized(items)
        return found + encoded_number(0, self._chance.choice([0, 0, 1]))

    def damage(self, payload: bytes) -> bytes | None:
        """Do something to a framed payload that a network or a bug may do."""
        place = self._chance.randrange(len(payload))
        flipped = payload[place] ^ (1 << self._chance.randrange(8))
        choices: list[bytes | None] = [
            None,
            b"",
            payload[:place],
            payload[:4],
            payload + b"\x00",
            payload + payload,
            payload[:place] + bytes([flipped]) + payload[place + 1 :],
            payload[:place] + b"\xff" * 8 + b"\x7f" + payload[place + 1 :],
            payload[:place] + b"\xff" * 9 + b"\x01" + payload[place + 1 :],
            b"\x01" + payload[1:],
            payload[:4] + bytes([self._chance.randrange(6)]) + payload[5:],
        ]
        return self._chance.choice(choices)
