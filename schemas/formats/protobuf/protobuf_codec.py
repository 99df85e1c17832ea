"""The compiled form of a contract: reads and writes one message at a time.

What this module accepts is what an event is. The library's parser reads it. A payload
that the parser, given the values it read, would write with other bytes goes through
``wire_walk`` as well, which refuses values that the parser has cut or ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError as ParserError
from google.protobuf.message import Message

from tallyweir.schemas.errors import DecodeError, EncodeError, ReasonCode
from tallyweir.schemas.formats.format import BegunEvent, BegunField, EventRecord
from tallyweir.schemas.formats.protobuf.message_fields import first_unset, read_tree
from tallyweir.schemas.formats.protobuf.message_values import (
    Get,
    Put,
    as_record_value,
    compile_get,
    compile_put,
    is_plain,
)
from tallyweir.schemas.formats.protobuf.proto_file import message_of
from tallyweir.schemas.formats.protobuf.wire_walk import (
    Entry,
    MessageFault,
    MessageWalk,
    entries,
)
from tallyweir.schemas.record_check import Check, MisfitError, compile_check


class MessageEvent(NamedTuple):
    """What one payload holds.

    Attributes:
        values: The values in the order of ``ProtobufCodec.columns``, instants in
            microseconds since 1970.
        canonical: The message with its fields in the order of their numbers, without
            those that have their default, and with the entries of maps sorted.
        unnamed: The fields that the contract does not name, as ``customer.#7``.
    """

    values: tuple[object, ...]
    canonical: bytes
    unnamed: frozenset[str]


_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufCodec:
    """What the messages of one contract need, one at a time.

    Attributes:
        fields: The fields, in the order of the file.
        columns: The same, in the order in which values are read.
        message: The library's class of the messages.
        read_plain: Reads the first columns at once: those whose values are taken as
            they are.
        read_others: What reads each other column.
        gets: What reads each field.
        puts: What writes each field.
        converts: What makes of a column's value one of a record, where they differ.
        walk: What checks payloads that are not in canonical form.
        check: What a record has to pass.
        may_lack: Whether a message can lack a field that proto2 requires.
        highest: The highest number of a field.
        harmless_bytes: Longer payloads are checked whole, as ``walk`` says.
    """

    fields: tuple[FieldDescriptor, ...]
    columns: tuple[FieldDescriptor, ...]
    message: Any
    read_plain: Callable[[Any], tuple[object, ...]]
    read_others: tuple[Get, ...]
    gets: tuple[Get, ...]
    puts: tuple[Put, ...]
    converts: Mapping[str, Callable[[Any], object]]
    walk: MessageWalk
    check: Check
    may_lack: bool
    highest: int
    harmless_bytes: int

    def read(self, payload: bytes | None) -> MessageEvent:
        """Read one payload; None is a tombstone.

        Raises:
            DecodeError: It is no event.
        """
        if payload is None:
            raise DecodeError(ReasonCode.EMPTY_PAYLOAD, "the value is null")
        try:
            return MessageEvent(*self.read_into(self.message(), payload))
        except MessageFault as exc:
            raise exc.as_error() from None

    def read_into(
        self,
        message: Any,  # noqa: ANN401 - its class is made at run time
        payload: bytes,
    ) -> tuple[tuple[object, ...], bytes, frozenset[str]]:
        """Read one payload into a message, which keeps the memory of all it has read.

        Returns:
            The parts of a ``MessageEvent``, which takes time to make.

        Raises:
            MessageFault: It is no event.
        """
        try:
            message.ParseFromString(payload)
        except ParserError as exc:
            self.walk.check(payload)
            raise MessageFault(ReasonCode.MALFORMED, "no message") from exc
        if self.may_lack and not message.IsInitialized():
            self.walk.check(payload)
            fault = MessageFault(ReasonCode.MISSING_FIELD, "missing, and required")
            fault.path.append(first_unset(message))
            raise fault
        written = message.SerializeToString(deterministic=True)
        message.DiscardUnknownFields()
        has_unnamed = message.ByteSize() != len(written)
        unnamed = _NONE
        if has_unnamed:
            unnamed, written = self._read_unnamed(payload, message, written)
        elif written != payload or len(payload) > self.harmless_bytes:
            self.walk.check(payload)
        others = [get(message) for get in self.read_others]
        return (*self.read_plain(message), *others), written, unnamed

    def _read_unnamed(
        self,
        payload: bytes,
        message: Any,  # noqa: ANN401 - its class is made at run time
        written: bytes,
    ) -> tuple[frozenset[str], bytes]:
        """Check a message that has fields which the contract does not name.

        Args:
            payload: The payload.
            message: The message without these fields.
            written: The message with them.

        Returns:
            The fields, and the canonical form.
        """
        known = message.SerializeToString(deterministic=True)
        is_harmless = len(payload) <= self.harmless_bytes
        if is_harmless and written == payload and written.startswith(known):
            # All of them stand at the end: a producer that is ahead of the contract
            # adds them there.
            tail = payload[len(known) :]
            unnamed = self.walk.check(tail)
            numbers = [
                self.highest,
                *(one.number for one in entries(tail, 0, len(tail))),
            ]
            if numbers == sorted(numbers):
                return unnamed, written
            return unnamed, self.walk.sorted(written)
        return self.walk.check(payload), self.walk.sorted(written)

    def record(self, event: MessageEvent) -> EventRecord:
        """Return an event's values as ``write`` takes them."""
        names = (one.name for one in self.columns)
        values = dict(zip(names, event.values, strict=True))
        return {one.name: self._converted(one, values[one.name]) for one in self.fields}

    def _converted(self, field: FieldDescriptor, value: object) -> object:
        convert = self.converts.get(field.name)
        return value if convert is None or value is None else convert(value)

    def write(self, record: EventRecord) -> bytes:
        """Write one record as a message.

        Raises:
            EncodeError: The record does not fit.
        """
        try:
            self.check(record)
            message = self.message()
            chosen: dict[str, str] = {}
            for field, put in zip(self.fields, self.puts, strict=True):
                value = record.get(field.name)
                if value is None:
                    continue
                if field.containing_oneof is not None:
                    _choose(chosen, field)
                put(message, value)
            if self.may_lack:
                _check_required(message)
            written = bytes(message.SerializeToString(deterministic=True))
            # The library refuses a lone surrogate, say, with errors of any class.
        except Exception as exc:
            saw = str(exc) if isinstance(exc, MisfitError) else repr(exc)
            raise EncodeError(
                "RECORD_MISFIT",
                saw=f"A record of {self.message.DESCRIPTOR.name}: {saw}.",
                why="Readers would not get back the value that was written.",
                fix="Correct the value, or the field's type.",
            ) from exc
        return written

    def begin(self, payload: bytes, until: str | None) -> BegunEvent:
        """Read a payload as far as it goes; see ``Format.read_begun``."""
        found, failed_at = _entries_of(payload)
        begun: list[BegunField] = []
        for place, field in enumerate(self.fields):
            own = found.get(field.number, [])
            failed = None
            value: object = None
            if own:
                failed, value = self._read_field(payload, place, own)
            else:
                failed = failed_at
                value = self._value(self.message(), place)
            # A field in front of the wanted one does not hide it: fields have no order.
            if failed is not None and until in {None, field.name}:
                return BegunEvent(fields=tuple(begun), failed_at=failed)
            begun.append(
                BegunField(
                    from_byte=own[-1].start if own else len(payload),
                    until_byte=own[-1].end if own else len(payload),
                    value=value,
                )
            )
            if field.name == until:
                break
        return BegunEvent(fields=tuple(begun), failed_at=None)

    def _read_field(
        self, payload: bytes, place: int, own: list[Entry]
    ) -> tuple[int | None, object]:
        """Return where a field cannot be read, and its value if it can."""
        for one in own:
            try:
                self.walk.check_entry(payload, one)
            except MessageFault:
                return one.start, None
        alone = b"".join(payload[one.start : one.end] for one in own)
        try:
            return None, self._value(self.message.FromString(alone), place)
        except (MessageFault, ParserError):
            return own[-1].start, None

    def _value(self, message: Any, place: int) -> object:  # noqa: ANN401
        return self._converted(self.fields[place], self.gets[place](message))


@lru_cache(maxsize=256)
def compile_codec(text: str) -> ProtobufCodec:
    """Return the codec of a contract by its canonical text, compiled once."""
    message = message_of(text)
    fields = tuple(message.fields)
    gets = tuple(_named(one, compile_get(one)) for one in fields)
    plain = [one for one in fields if is_plain(one)]
    others = [one for one in fields if not is_plain(one)]
    walk = MessageWalk(message)
    converts = {one.name: as_record_value(one) for one in fields}
    return ProtobufCodec(
        fields=fields,
        columns=(*plain, *others),
        message=message_factory.GetMessageClass(message),
        read_plain=_read_all([one.name for one in plain]),
        read_others=tuple(gets[fields.index(one)] for one in others),
        gets=gets,
        puts=tuple(compile_put(one) for one in fields),
        converts={name: one for name, one in converts.items() if one is not None},
        walk=walk,
        check=compile_check(read_tree(message)),
        may_lack=_has_required(message),
        highest=max(one.number for one in fields),
        harmless_bytes=walk.harmless_bytes,
    )


def _read_all(names: list[str]) -> Callable[[Any], tuple[object, ...]]:
    """Return what reads attributes of a message as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    gets = [attrgetter(one) for one in names]
    return lambda message: tuple(get(message) for get in gets)


def _named(field: FieldDescriptor, get: Get) -> Get:
    """Add the field's name to what goes wrong in it."""
    if field.message_type is None and field.type != FieldDescriptor.TYPE_STRING:
        return get
    name = field.name

    def named(message: Any) -> object:  # noqa: ANN401 - its class is made at run time
        try:
            return get(message)
        except MessageFault as exc:
            exc.path.append(name)
            raise

    return named


def _has_required(message: Descriptor) -> bool:
    left, seen = [message], set[str]()
    while left:
        one = left.pop()
        if one.full_name in seen:
            continue
        seen.add(one.full_name)
        if any(field.is_required for field in one.fields):
            return True
        left += [field.message_type for field in one.fields if field.message_type]
    return False


def _check_required(message: Message) -> None:
    # The library checks it too, but its own message about it may kill the process.
    if not message.IsInitialized():
        raise MisfitError(f"field {first_unset(message)}: missing, and required")


def _choose(chosen: dict[str, str], field: FieldDescriptor) -> None:
    other = chosen.setdefault(field.containing_oneof.name, field.name)
    if other != field.name:
        raise MisfitError(
            f"field {field.name}: {other} has a value too, and both are in the oneof "
            f"{field.containing_oneof.name}"
        )


def _entries_of(payload: bytes) -> tuple[dict[int, list[Entry]], int | None]:
    """Return the entries by number, and where they end if not at the end."""
    found: dict[int, list[Entry]] = {}
    reached = 0
    try:
        for one in entries(payload, 0, len(payload)):
            found.setdefault(one.number, []).append(one)
            reached = one.end
    except MessageFault:
        return found, reached
    return found, None
