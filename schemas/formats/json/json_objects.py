"""Walk through the objects of many rows at once, member by member.

In each round, every row reads its next member. Rows that have the same bytes from the
comma before the name to the colon behind it read it together. Producers mostly write
their members in one order and with the same spaces, so that there is one such group in
a round. Names that the contract lacks are learned as they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tallyweir.schemas.formats.json.json_canonical import canonical_string
from tallyweir.schemas.formats.json.json_codec import JsonBranch, JsonLeaf
from tallyweir.schemas.formats.json.json_leaves import Member, Side
from tallyweir.schemas.formats.json.json_scan import (
    CLOSE,
    COMMA,
    OPEN,
    QUOTE,
    SPACE,
    BoolArray,
    ByteArray,
    Cursor,
    I64Array,
    Scan,
    join,
)
from tallyweir.schemas.formats.json.json_text import Fault, read_text

#: The most names of an object that are learned; rows with others are read alone.
NAMES_MAX = 256
_WORD_BYTES = 8
_match_head = re.compile(
    rb'[{,][ \t\n\r]*"(?:[^"\\]|\\.)*+"[ \t\n\r]*:[ \t\n\r]*', re.DOTALL
).match


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
        self._by_head: dict[bytes, Member] = {}

    def in_order(self) -> Iterator[tuple[str, Member]]:
        """Yield the members in the order of the canonical form."""
        yield from sorted(self.members.items())

    def is_named(self, name: str) -> bool:
        """Tell whether the contract names a member, or something in it."""
        return name in self._branch.members

    def read_object(self, cursor: Cursor) -> Cursor:
        """Read the object at each place; return a cursor behind the objects."""
        cursor = cursor.keep(cursor.bytes() == OPEN)
        self.is_object[cursor.where] = True
        inside = cursor.moved(cursor.at + 1)
        is_closed = inside.skip_spaces() == CLOSE
        done = [inside.keep(is_closed)] if is_closed.any() else []
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
        if not done:
            return cursor.none()
        closed = join(done)
        return closed.moved(closed.at + 1)

    def _read_kind(self, kind: str, cursor: Cursor, first: ByteArray) -> list[Cursor]:
        del kind, first
        return [self.read_object(cursor)]

    def _read_members(self, cursor: Cursor) -> Cursor:
        """Read one member of each row, with the bracket or the comma before it."""
        done: list[Cursor] = []
        for _ in range(NAMES_MAX):
            if not cursor.rows.size:
                break
            head = self._first_head(cursor)
            if head is None:
                cursor = self._without_first(cursor)
                continue
            has_head = self._has_bytes(head, cursor.at)
            member = self._find(head)
            if member is not None:
                following = cursor.keep(has_head).behind(len(head), quotes=2)
                behind_head = following.at
                first = following.skip_spaces()
                member.note_head(head if following.at is behind_head else None)
                done.append(member.read(following, first))
            if has_head.all():
                break
            cursor = cursor.keep(~has_head)
        return join(done) if done else cursor.none()

    def _first_head(self, cursor: Cursor) -> bytes | None:
        """Return the bytes before the first row's value, such as ``,"name":``."""
        start, end = int(cursor.at[0]), int(self._scan.ends[cursor.rows[0]])
        found = _match_head(self._scan.data[start:end].tobytes())
        return found[0] if found else None

    def _without_first(self, cursor: Cursor) -> Cursor:
        """Drop the first row, and all others in which no name begins."""
        begins = self._scan.bytes_at(cursor.at + 1)
        kept = (begins == QUOTE) | (begins <= SPACE)
        kept[0] = False
        return cursor.keep(kept)

    def _has_bytes(self, wanted: bytes, places: I64Array) -> BoolArray:
        found: BoolArray = np.ones(places.size, np.bool_)
        for at in range(0, len(wanted), 2 * _WORD_BYTES):
            part = wanted[at : at + 2 * _WORD_BYTES]
            pairs = self._scan.pairs_at(places + at if at else places)
            for index in range(0, len(part), _WORD_BYTES):
                word = part[index : index + _WORD_BYTES]
                # Shifted, so that bytes that are not wanted fall out.
                shift = np.uint64(8 * (_WORD_BYTES - len(word)))
                number = np.uint64(int.from_bytes(word, "little")) << shift
                found &= (pairs[:, index // _WORD_BYTES] << shift) == number
        return found

    def _find(self, head: bytes) -> Member | None:
        """Return the member of the name in a head; see ``_first_head``."""
        member = self._by_head.get(head)
        if member is not None:
            return member
        try:
            text, _ = read_text(head.decode(), head.find(b'"'))
        except (Fault, UnicodeDecodeError):
            return None
        member = self.members.get(text)
        if member is None:
            if self._refuses or len(self.members) >= NAMES_MAX:
                return None
            member = self.members[text] = self._member(None)
        if len(self._by_head) < 2 * NAMES_MAX:
            self._by_head[head] = member
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
