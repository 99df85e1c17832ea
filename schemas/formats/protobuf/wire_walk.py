"""Walk through the bytes of one message: check them, and tell where something is wrong.

The library's parser decides whether bytes are a message, but it takes a value that does
not fit its field for an unknown field, or cuts it to the field's size. ``MessageWalk``
refuses these, and finds the place of whatever the parser refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tallyweir.schemas.errors import DecodeError, ReasonCode

#: How deep the library's parser follows messages in messages.
DEPTH_MAX = 100
#: The most values that the messages inside of a message may have as JSON, where each
#: field has one: two bytes are a whole message without any.
VALUES_MAX = 1_000_000
_VARINT, _WORD64, _SIZED, _GROUP, _GROUP_END, _WORD32 = range(6)
_WIDTHS = {_WORD64: 8, _WORD32: 4}
_WIRE_NAMES = ("a varint", "8 bytes", "a length", "a group", "a group's end", "4 bytes")
_VARINT_BYTES_MAX = 10
_VARINT_LIMIT = 1 << 64
_FIELD_LIMIT = 1 << 29

_INT32 = ((0, (1 << 31) - 1), ((1 << 64) - (1 << 31), (1 << 64) - 1))
_UNSIGNED32 = ((0, (1 << 32) - 1),)
_WHOLE64 = ((0, (1 << 64) - 1),)
#: Which varints are values of each type.
_RANGES: dict[int, Sequence[tuple[int, int]]] = {
    FieldDescriptor.TYPE_BOOL: ((0, 1),),
    FieldDescriptor.TYPE_ENUM: _INT32,
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_INT64: _WHOLE64,
    FieldDescriptor.TYPE_SINT32: _UNSIGNED32,
    FieldDescriptor.TYPE_SINT64: _WHOLE64,
    FieldDescriptor.TYPE_UINT32: _UNSIGNED32,
    FieldDescriptor.TYPE_UINT64: _WHOLE64,
}
_WIRES = dict.fromkeys(_RANGES, _VARINT) | {
    FieldDescriptor.TYPE_DOUBLE: _WORD64,
    FieldDescriptor.TYPE_FIXED32: _WORD32,
    FieldDescriptor.TYPE_FIXED64: _WORD64,
    FieldDescriptor.TYPE_FLOAT: _WORD32,
    FieldDescriptor.TYPE_GROUP: _GROUP,
    FieldDescriptor.TYPE_SFIXED32: _WORD32,
    FieldDescriptor.TYPE_SFIXED64: _WORD64,
}


class MessageFault(Exception):  # noqa: N818 - it becomes a DecodeError
    """Something in a message is wrong.

    Attributes:
        reason: Which rule it breaks.
        saw: What was seen.
        path: The names that lead to the field, the innermost first.
    """

    def __init__(self, reason: ReasonCode, saw: str) -> None:
        super().__init__(reason, saw)
        self.reason = reason
        self.saw = saw
        self.path: list[str] = []

    def as_error(self) -> DecodeError:
        """Return the error with the field's path."""
        at = f"field {'.'.join(reversed(self.path))}: " if self.path else ""
        return DecodeError(self.reason, f"{at}{self.saw}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A field's number and one value of it, as they stand in the bytes.

    Attributes:
        number: The field's number.
        wire: How the value is written.
        start: Where the entry begins.
        begin: Where the value's content begins.
        stop: Where the content ends; behind it, only a group has something.
        end: Where the next entry begins.
    """

    number: int
    wire: int
    start: int
    begin: int
    stop: int
    end: int


def entries(payload: bytes, start: int, end: int, depth: int = 0) -> Iterator[Entry]:
    """Yield the entries of a message.

    Raises:
        MessageFault: From there on, the bytes are not entries.
    """
    while start < end:
        entry = _read_entry(payload, start, end, depth)
        if entry.wire == _GROUP_END:
            raise MessageFault(
                ReasonCode.MALFORMED, f"no group ends at byte {entry.start}"
            )
        yield entry
        start = entry.end


def _read_entry(payload: bytes, start: int, end: int, depth: int) -> Entry:
    tag, begin = read_varint(payload, start, end)
    number, wire = tag >> 3, tag & 7
    if not 0 < number < _FIELD_LIMIT or wire > _WORD32:
        raise MessageFault(
            ReasonCode.MALFORMED, f"no field begins at byte {start} (tag {tag})"
        )
    if wire == _VARINT:
        _, stop = read_varint(payload, begin, end)
    elif wire == _SIZED:
        size, begin = read_varint(payload, begin, end)
        stop = begin + size
    elif wire == _GROUP:
        stop, after = _end_of_group(payload, begin, end, number, depth + 1)
        return Entry(number, wire, start, begin, stop, after)
    else:
        stop = begin + _WIDTHS.get(wire, 0)
    if stop > end:
        raise MessageFault(
            ReasonCode.MALFORMED,
            f"the value of field number {number} ends at byte {stop} of {end}",
        )
    return Entry(number, wire, start, begin, stop, stop)


def _end_of_group(
    payload: bytes, at: int, end: int, number: int, depth: int
) -> tuple[int, int]:
    require_depth(depth)
    while at < end:
        entry = _read_entry(payload, at, end, depth)
        if entry.wire != _GROUP_END:
            at = entry.end
        elif entry.number == number:
            return entry.start, entry.end
        else:
            break
    raise MessageFault(
        ReasonCode.MALFORMED, f"the group of field number {number} does not end"
    )


def require_depth(depth: int) -> None:
    """Refuse messages that are nested too deep for the parser.

    Raises:
        MessageFault: They are.
    """
    if depth > DEPTH_MAX:
        raise MessageFault(
            ReasonCode.MALFORMED, f"messages are nested deeper than {DEPTH_MAX} levels"
        )


def read_varint(payload: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a varint.

    Returns:
        The number, and the place behind it.

    Raises:
        MessageFault: There is none.
    """
    value = shift = 0
    for place in range(at, min(end, at + _VARINT_BYTES_MAX)):
        byte = payload[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more bytes follow
            if value >= _VARINT_LIMIT:
                break
            return value, place + 1
        shift += 7
    cut = f", {end - at} bytes before the end" if end - at < _VARINT_BYTES_MAX else ""
    raise MessageFault(ReasonCode.MALFORMED, f"no varint at byte {at}{cut}")


@dataclass(slots=True)
class _Seen:
    """What a check has come across: unnamed fields, and the number of values."""

    unnamed: set[str]
    values: int = 0


class MessageWalk:
    """Walks through messages of one type; compiled once."""

    def __init__(
        self, message: Descriptor, known: dict[str, MessageWalk] | None = None
    ) -> None:
        known = {} if known is None else known
        known[message.full_name] = self
        self._fields = {one.number: _FieldWalk(one, known) for one in message.fields}
        self._known = known

    @property
    def harmless_bytes(self) -> int:
        """A payload of at most so many bytes cannot have too many values."""
        most = max(len(one._fields) for one in self._known.values())
        return 2 * VALUES_MAX // max(1, most)

    def check(self, payload: bytes) -> frozenset[str]:
        """Check a whole message.

        Returns:
            The fields that the type does not have, by number and path.

        Raises:
            MessageFault: Something is wrong.
        """
        seen = _Seen(set())
        self._check(payload, 0, len(payload), 0, "", seen)
        return frozenset(seen.unnamed)

    def check_entry(self, payload: bytes, entry: Entry) -> None:
        """Check one entry of a message.

        Raises:
            MessageFault: Something in it is wrong.
        """
        self._check(payload, entry.start, entry.end, 0, "", _Seen(set()))

    def _check(  # noqa: PLR0913, PLR0917 - called for each nested message
        self,
        payload: bytes,
        start: int,
        end: int,
        depth: int,
        at: str,
        seen: _Seen,
    ) -> None:
        require_depth(depth)
        seen.values += len(self._fields)
        if seen.values > VALUES_MAX:
            raise MessageFault(
                ReasonCode.OUT_OF_RANGE,
                f"as JSON, the message would have over {VALUES_MAX:,} values",
            )
        for entry in entries(payload, start, end, depth):
            field = self._fields.get(entry.number)
            if field is None:
                seen.unnamed.add(f"{at}#{entry.number}")
                continue
            try:
                field.check_value(payload, entry)
                if field.message is not None:
                    inner = self._known[field.message]
                    inner._check(  # noqa: SLF001 - of the same class
                        payload,
                        entry.begin,
                        entry.stop,
                        depth + 1,
                        f"{at}{field.name}.",
                        seen,
                    )
            except MessageFault as exc:
                exc.path.append(field.name)
                raise

    def sorted(self, payload: bytes) -> bytes:
        """Return a message with its fields in the order of their numbers, at any depth.

        Args:
            payload: The bytes of a valid message.
        """
        return self._sort(payload, 0, len(payload))

    def _sort(self, payload: bytes, start: int, end: int) -> bytes:
        parts = []
        for entry in entries(payload, start, end):
            field = self._fields.get(entry.number)
            part = payload[entry.start : entry.end]
            if field is not None and field.message and entry.wire == _SIZED:
                inner = self._known[field.message]._sort(  # noqa: SLF001
                    payload, entry.begin, entry.stop
                )
                # The content keeps its length, so the head is the same.
                part = payload[entry.start : entry.begin] + inner
            parts.append((entry.number, part))
        parts.sort(key=lambda one: one[0])
        return b"".join(part for _, part in parts)


class _FieldWalk:
    """What one field allows."""

    def __init__(self, field: FieldDescriptor, known: dict[str, MessageWalk]) -> None:
        self.name = field.name
        self.message: str | None = None
        inner = field.message_type
        if inner is not None:
            self.message = inner.full_name
            if inner.full_name not in known:
                MessageWalk(inner, known)
        self._wire = _WIRES.get(field.type, _SIZED)
        self._may_be_packed = (
            field.is_repeated and self._wire != _SIZED and inner is None
        )
        self._is_text = field.type == FieldDescriptor.TYPE_STRING
        self._ranges = _RANGES.get(field.type)
        kind = field.enum_type
        self._numbers = (
            frozenset(one.number for one in kind.values)
            if kind is not None and kind.is_closed
            else None
        )

    def check_value(self, payload: bytes, entry: Entry) -> None:
        """Check an entry of the field, but not what a message in it holds.

        Raises:
            MessageFault: Its value is not one of the field.
        """
        if entry.wire != self._wire:
            if entry.wire != _SIZED or not self._may_be_packed:
                raise MessageFault(
                    ReasonCode.WRONG_TYPE,
                    f"expected {_WIRE_NAMES[self._wire]}, got "
                    f"{_WIRE_NAMES[entry.wire]} at byte {entry.begin}",
                )
            self._check_packed(payload, entry)
        elif self._ranges is not None:
            self._check_number(*read_varint(payload, entry.begin, entry.stop))
        elif self._is_text:
            self._check_text(payload[entry.begin : entry.stop])

    def _check_packed(self, payload: bytes, entry: Entry) -> None:
        at = entry.begin
        while at < entry.stop and self._ranges is not None:
            value, at = read_varint(payload, at, entry.stop)
            self._check_number(value, at)
        if self._ranges is None and (entry.stop - at) % _WIDTHS[self._wire]:
            raise MessageFault(
                ReasonCode.MALFORMED, f"a number is cut off at byte {entry.stop}"
            )

    def _check_number(self, value: int, end: int) -> None:
        assert self._ranges is not None, "only varints have ranges"
        if not any(low <= value <= high for low, high in self._ranges):
            raise MessageFault(
                ReasonCode.OUT_OF_RANGE,
                f"the number {value} before byte {end} is not within its type",
            )
        signed = value - _VARINT_LIMIT if value >> 63 else value
        if self._numbers is not None and signed not in self._numbers:
            raise MessageFault(
                ReasonCode.OUT_OF_RANGE,
                f"the enum is closed and has no number {signed}",
            )

    def _check_text(self, text: bytes) -> None:
        try:
            text.decode()
        except UnicodeDecodeError as exc:
            raise MessageFault(
                ReasonCode.MALFORMED, f"the text is not UTF-8 at its byte {exc.start}"
            ) from exc
