"""Assemble texts from spans of bytes: canonical forms, and columns of texts.

A canonical form is a sequence of spans: of values, which lie in the payloads as they
are wanted in most rows, and of what is between them. Arrow takes the spans of all rows
in one step and copies each byte once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.schemas.formats.json.json_canonical import canonical_string
from tallyweir.schemas.formats.json.json_leaves import Member, Side
from tallyweir.schemas.formats.json.json_objects import Literals, ObjectMember
from tallyweir.schemas.formats.json.json_scan import BoolArray, I64Array, Scan

#: Either one literal for all rows, or one for each.
_Choice = int | I64Array


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a member, each with so many bytes before it."""

    member: Member
    before: int = 0


class Assembly:
    """The members of some rows, in the order in which they are joined."""

    def __init__(
        self, side: Side, scan: Scan, rows: I64Array, *, only_unnamed: bool
    ) -> None:
        """Prepare.

        Args:
            side: Takes the literals.
            scan: The bytes of the rows.
            rows: The rows of which texts are made.
            only_unnamed: Whether members that the contract names are left out.
        """
        self._rows, self._size = scan.where(rows), rows.size
        self._only_unnamed = only_unnamed
        self._literals = Literals(side)
        self._steps: list[_Values | _Choice] = []

    def add(self, node: ObjectMember) -> BoolArray:
        """Add the objects of all rows; return which rows have anything in them."""
        return self._add_members(node, np.ones(self._size, np.bool_))

    def join(self, data: pa.Buffer, size: int) -> pa.Array:
        """Return the text of each row, as bytes.

        Args:
            data: The payloads and what is beside them.
            size: Their number of bytes.
        """
        rows, steps = self._size, self._steps
        spans: list[npt.NDArray[np.int32]] = []
        order = np.empty((rows, len(steps)), np.int32)
        count = 0
        for index, step in enumerate(steps):
            if isinstance(step, _Values):
                pair = np.empty((rows, 2), np.int32)
                pair[:, 0] = step.member.starts[self._rows]
                pair[:, 0] -= step.before
                pair[:, 1] = step.member.stops[self._rows]
                spans.append(pair)
                order[:, index] = np.arange(count, count + rows)
                count += rows
        for index, step in enumerate(steps):
            if not isinstance(step, _Values):
                order[:, index] = step + count
        literals = np.array(self._literals.spans, np.int32).reshape(-1, 2)
        taken = take_spans(
            data, size, np.concatenate([*spans, literals]), order.ravel()
        )
        offsets = np.frombuffer(taken.buffers()[1], np.int32)[: rows * len(steps) + 1]
        ends = np.ascontiguousarray(offsets[:: len(steps)])
        return pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(ends), taken.buffers()[2]]
        )

    def close(self) -> None:
        """Join literals that follow each other, before the side is read."""
        merged: list[_Values | _Choice] = []
        for step in self._steps:
            last = merged[-1] if merged else None
            if isinstance(step, int) and isinstance(last, int):
                merged[-1] = self._literals.pair(last, step)
            else:
                merged.append(step)
        self._steps = merged

    def _is_shown(self, node: ObjectMember, name: str, member: Member) -> BoolArray:
        shown = member.is_present[self._rows]
        if not self._only_unnamed or not node.is_named(name):
            return shown
        if not isinstance(member, ObjectMember):
            return np.zeros_like(shown)
        inner = np.zeros_like(shown)
        for inside, one in member.members.items():
            inner |= self._is_shown(member, inside, one)
        return shown & inner

    def _add_members(self, node: ObjectMember, is_there: BoolArray) -> BoolArray:
        nothing = self._literals.place("")
        has_any = np.zeros(self._size, np.bool_)
        for name, member in node.in_order():
            shown = self._is_shown(node, name, member)
            if not shown.any():
                continue
            if self._add_as_written(name, member, shown, has_any):
                has_any[:] = True
                continue
            first = self._literals.name("{", name)
            later = self._literals.name(",", name)
            self._steps.append(_choose(shown, _choose(has_any, later, first), nothing))
            has_any |= shown
            if isinstance(member, ObjectMember) and member.is_object[self._rows].any():
                is_object = shown & member.is_object[self._rows]
                self._add_null(member, is_object)
                self._add_members(member, is_object)
            else:
                self._steps.append(_Values(member))
        closing = _choose(
            has_any, self._literals.place("}"), self._literals.place("{}")
        )
        self._steps.append(_choose(is_there, closing, nothing))
        return has_any

    def _add_as_written(
        self, name: str, member: Member, shown: BoolArray, has_any: BoolArray
    ) -> bool:
        """Add names and values as they stand in the payloads, if in all rows they can.

        Half as many spans are copied then.
        """
        is_first = not has_any.any()
        head = member.head
        if isinstance(member, ObjectMember) or not (
            head is not None
            and head[1:] == f"{canonical_string(name)}:".encode()
            and shown.all()
            and (is_first or has_any.all())
        ):
            return False
        if head[:1] == b"," and not is_first:
            self._steps.append(_Values(member, len(head)))
        else:
            self._steps.append(self._literals.place("{" if is_first else ","))
            self._steps.append(_Values(member, len(head) - 1))
        return True

    def _add_null(self, member: ObjectMember, is_object: BoolArray) -> None:
        """Add the nulls that stand for an object in some rows."""
        is_null = member.is_present[self._rows] & ~is_object
        if is_null.any() and not self._only_unnamed:
            null, nothing = self._literals.place("null"), self._literals.place("")
            self._steps.append(_choose(is_null, null, nothing))


def take_spans(
    data: pa.Buffer,
    size: int,
    spans: npt.NDArray[np.int32],
    order: npt.NDArray[np.int32],
) -> pa.Array:
    """Copy spans of bytes into a column, in any order.

    Args:
        data: The bytes.
        size: Their number.
        spans: Where each span begins and ends.
        order: The spans to copy.
    """
    # Arrow does not check offsets, and would read outside of the buffer.
    assert spans.size == 0 or (spans.min() >= 0 and spans.max() <= size), (
        "spans outside"
    )
    assert (spans[:, 0] <= spans[:, 1]).all(), "a span ends before it begins"
    # Every second element is a span; those between are never taken.
    offsets = np.append(spans.ravel(), np.int32(size))
    elements = pa.Array.from_buffers(
        pa.binary(), offsets.size - 1, [None, pa.py_buffer(offsets), data]
    )
    return elements.take(pa.array(order * np.int32(2)))


def _choose(condition: BoolArray, one: _Choice, other: _Choice) -> _Choice:
    if condition.all():
        return one
    if not condition.any():
        return other
    return np.where(condition, one, other)


def joined_bytes(scan: Scan, side: Side) -> tuple[pa.Buffer, int]:
    """Return the bytes that all spans refer to, and their number."""
    extra = np.frombuffer(side.joined(), np.uint8)
    size = scan.data.size + extra.size
    if size <= scan.room.size:
        scan.room[scan.data.size : size] = extra
        return pa.py_buffer(scan.room), size
    return pa.py_buffer(np.concatenate([scan.data, extra])), size
