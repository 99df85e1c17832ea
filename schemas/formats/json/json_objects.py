"""Walk through the objects of many rows at once, member by member.

In each round, every row reads its next member. Rows whose names have the same bytes
read it together. Producers mostly write their members in one order, so that there is
one such group in a round. Names that the contract lacks are learned as they come.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tallyweir.schemas.formats.json.json_canonical import canonical_string
from tallyweir.schemas.formats.json.json_codec import JsonBranch, JsonLeaf
from tallyweir.schemas.formats.json.json_leaves import Member, Side
from tallyweir.schemas.formats.json.json_scan import (
    CLOSE,
    COLON,
    COMMA,
    OPEN,
    BoolArray,
    Cursor,
    I64Array,
    Scan,
    join,
)
from tallyweir.schemas.formats.json.json_text import Fault, read_text

#: The most names of an object that are learned; rows with others are read alone.
NAMES_MAX = 256
_WORD_BYTES = 8


class ObjectMember(Member):
    """An object on the way to named fields, or the document itself."""

    def __init__(
        self, scan: Scan, side: Side, branch: JsonBranch, depth: int, *, refuses: bool
    ) -> None:
        """Prepare for the rows of a slice.

        Args:
            scan: The bytes of the rows.
            side: Takes what is not in them.
            branch: The named fields in the object.
            depth: The number of objects around it.
            refuses: Whether a row with another name is dropped.
        """
        super().__init__(scan, side, None, depth)
        self._branch, self._refuses = branch, refuses
        self.is_object = np.zeros(scan.starts.size, np.bool_)
        self.members: dict[str, Member] = {
            name: self._member(target) for name, target in branch.members.items()
        }
        self._by_bytes: dict[bytes, Member] = {}

    def in_order(self) -> Iterator[tuple[str, Member]]:
        """Yield the members in the order of the canonical form."""
        yield from sorted(self.members.items())

    def is_named(self, name: str) -> bool:
        """Tell whether the contract names a member, or something in it."""
        return name in self._branch.members

    def read_object(self, cursor: Cursor) -> Cursor:
        """Read the object at each place; see ``Member.read``."""
        cursor = cursor.keep(cursor.bytes() == OPEN)
        self.is_object[cursor.rows] = True
        cursor = cursor.moved(cursor.at + 1)
        is_closed = cursor.skip_spaces() == CLOSE
        done = [cursor.keep(is_closed)] if is_closed.any() else []
        cursor = cursor.keep(~is_closed)
        for _ in range(NAMES_MAX):
            if not cursor.rows.size:
                break
            cursor = self._read_members(cursor)
            following = cursor.skip_spaces()
            is_closed = following == CLOSE
            if is_closed.any():
                done.append(cursor.keep(is_closed))
            cursor = cursor.keep(following == COMMA)
            cursor = cursor.moved(cursor.at + 1)
            cursor.skip_spaces()
        if not done:
            return cursor.keep(np.zeros(cursor.rows.size, np.bool_))
        closed = join(done)
        return closed.moved(closed.at + 1)

    def _read_kind(self, kind: str, cursor: Cursor) -> list[Cursor]:
        del kind
        return [self.read_object(cursor)]

    def _read_members(self, cursor: Cursor) -> Cursor:
        """Read one member of each row."""
        cursor, starts, stops = cursor.text()
        done: list[Cursor] = []
        for _ in range(NAMES_MAX):
            if not cursor.rows.size:
                break
            name = self._scan.data[starts[0] : stops[0]].tobytes()
            has_name = self._has_name(name, starts, stops)
            member = self._find(name)
            if member is not None:
                done.append(self._read_value(cursor.keep(has_name), member))
            if has_name.all():
                break
            others = ~has_name
            cursor, starts, stops = cursor.keep(others), starts[others], stops[others]
        return join(done) if done else cursor.keep(np.zeros(cursor.rows.size, np.bool_))

    def _read_value(self, cursor: Cursor, member: Member) -> Cursor:
        cursor = cursor.moved(cursor.at)
        cursor = cursor.keep(cursor.skip_spaces() == COLON)
        cursor = cursor.moved(cursor.at + 1)
        cursor.skip_spaces()
        return member.read(cursor)

    def _has_name(self, name: bytes, starts: I64Array, stops: I64Array) -> BoolArray:
        found: BoolArray = stops - starts == len(name)
        for at in range(0, len(name), _WORD_BYTES):
            part = name[at : at + _WORD_BYTES]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            words = self._scan.words_at(starts + at) & mask
            found &= words == np.uint64(int.from_bytes(part, "little"))
        return found

    def _find(self, name: bytes) -> Member | None:
        """Return the member of a name, as its bytes stand between quotation marks."""
        member = self._by_bytes.get(name)
        if member is not None:
            return member
        try:
            text, _ = read_text(f'"{name.decode()}"', 0)
        except (Fault, UnicodeDecodeError):
            return None
        member = self.members.get(text)
        if member is None:
            if self._refuses or len(self.members) >= NAMES_MAX:
                return None
            member = self.members[text] = self._member(None)
        if len(self._by_bytes) < 2 * NAMES_MAX:
            self._by_bytes[name] = member
        return member

    def _member(self, target: JsonBranch | JsonLeaf | None) -> Member:
        depth = self._depth + 1
        if isinstance(target, JsonBranch):
            return ObjectMember(
                self._scan, self._side, target, depth, refuses=self._refuses
            )
        return Member(self._scan, self._side, target, depth)


class Literals:
    """The parts of a canonical form that are no values, at places in the side."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._places: dict[str, int] = {}
        self._texts: list[str] = []
        self.spans: list[tuple[int, int]] = []

    def place(self, text: str) -> int:
        """Return the index of a literal."""
        if text not in self._places:
            self._places[text] = len(self.spans)
            self._texts.append(text)
            self.spans.append(self._side.add(text.encode()))
        return self._places[text]

    def pair(self, one: int, other: int) -> int:
        """Return the index of two literals joined."""
        return self.place(self._texts[one] + self._texts[other])

    def name(self, before: str, name: str) -> int:
        """Return the index of a member's name with its colon."""
        return self.place(f"{before}{canonical_string(name)}:")
