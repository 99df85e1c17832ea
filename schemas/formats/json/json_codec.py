"""The compiled form of a contract: reads and writes one document at a time.

What this module accepts is what an event is; ``json_rows`` and whatever is faster
must agree with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tallyweir.schemas.errors import DecodeError, EncodeError, ReasonCode
from tallyweir.schemas.formats.debezium_envelope import (
    IMAGES,
    OP,
    ROW,
    compared,
    unwrap,
)
from tallyweir.schemas.formats.format import BegunEvent, BegunField, EventRecord
from tallyweir.schemas.formats.json.json_canonical import (
    canonical_string,
    canonical_text,
)
from tallyweir.schemas.formats.json.json_fields import (
    JsonField,
    fields_of,
    write_path,
)
from tallyweir.schemas.formats.json.json_text import (
    Fault,
    Value,
    after_item,
    begin_items,
    byte_of,
    decode_text,
    parse_document,
    read_name,
    read_value,
    shorten,
    show,
)
from tallyweir.schemas.formats.json.json_values import (
    Reader,
    Writer,
    compile_reader,
    compile_writer,
)

#: The most characters of an unnamed field's path that are reported.
UNNAMED_CHARACTERS_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLeaf:
    """A named field, and what reads and writes its values."""

    field: JsonField
    read: Reader
    write: Writer


@dataclass(frozen=True, slots=True)
class JsonBranch:
    """An object on the way to named fields: what each name in it leads to."""

    members: dict[str, JsonBranch | JsonLeaf] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonEvent:
    """What one document holds.

    Attributes:
        record: The values of the columns.
        document: The whole document; of an envelope, what repeats share.
        unnamed: The paths of the fields that the contract does not name.
    """

    record: EventRecord
    document: dict[str, Value]
    unnamed: tuple[str, ...]

    @property
    def canonical(self) -> bytes:
        """The document's canonical form."""
        return canonical_text(self.document).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCodec:
    """What the documents of one contract need, one at a time.

    Attributes:
        root: The named fields as a tree.
        leaves: The named fields in the order of the columns.
        unknown: What becomes of the others.
        rest: The column of all others; None if there is none.
        envelope: What is around each event, as ``debezium_envelope`` names it; empty if
            nothing is. Then only fields of the row count as not named.
    """

    root: JsonBranch
    leaves: tuple[JsonLeaf, ...]
    unknown: str
    rest: str | None
    envelope: str

    def read(self, payload: bytes | None) -> JsonEvent:
        """Read one payload.

        Raises:
            DecodeError: It is no event; a ``SkippedRecordError`` if the envelope
                knows it for something else.
        """
        document = unwrap(payload) if self.envelope else parse_document(payload)
        record: EventRecord = dict.fromkeys(one.field.column for one in self.leaves)
        unnamed: list[str] = []
        try:
            rest = self._take(self.root, document, record, (), unnamed)
            self._require(record)
        except Fault as exc:
            raise exc.as_error() from None
        if self.envelope:
            rest = _object(rest.get(ROW, {}))
            document = compared(document)
        if self.rest is not None:
            record[self.rest] = canonical_text(rest) if rest else None
        return JsonEvent(record=record, document=document, unnamed=tuple(unnamed))

    def write(self, record: EventRecord) -> bytes:
        """Write one record as a document without the fields that are None.

        Raises:
            EncodeError: The record does not fit.
        """
        left = dict(record)
        parts: dict[tuple[str, ...], str] = {}
        for leaf in self.leaves:
            value = left.pop(leaf.field.column, None)
            if value is not None:
                parts[leaf.field.path] = _written(leaf, value)
            elif leaf.field.is_required:
                raise _misfit(leaf.field.column, "missing, and not null")
        rest = None if self.rest is None else left.pop(self.rest, None)
        if left:
            raise _misfit(min(map(str, left)), "not in the contract")
        document = _nest(parts)
        if rest is not None:
            found = self._read_rest(rest)
            _merge(document, {ROW: found} if self.envelope else found, self.root)
        if self.envelope:
            _wrap(document)
        return _join(document).encode()

    def begin(self, payload: bytes, until: str | None) -> BegunEvent:
        """Read a payload as far as it goes; see ``Format.read_begun``."""
        if self.envelope:
            return self._begin_enveloped(payload, until)
        try:
            text = decode_text(payload)
        except DecodeError:
            text = payload.decode(errors="replace")
        spans: dict[tuple[str, ...], tuple[int, int, Value]] = {}
        failed_at = _scan(text, self.root, spans)
        begun: list[BegunField] = []
        for leaf in self.leaves:
            value: object = None
            start, stop, found = spans.get(leaf.field.path, (-1, -1, None))
            failed = failed_at if start < 0 else None
            if start < 0:
                start = stop = len(text)
            try:
                value = None if found is None else leaf.read(found)
            except Fault:
                failed = start
            # A field in front of the wanted one does not hide it: JSON has no order.
            if failed is not None and until in {None, leaf.field.column}:
                return BegunEvent(
                    fields=tuple(begun), failed_at=_byte(payload, text, failed)
                )
            begun.append(
                BegunField(
                    from_byte=_byte(payload, text, start),
                    until_byte=_byte(payload, text, stop),
                    value=value,
                )
            )
            if leaf.field.column == until:
                break
        return BegunEvent(fields=tuple(begun), failed_at=None)

    def _begin_enveloped(self, payload: bytes, until: str | None) -> BegunEvent:
        """Read what an envelope holds; where that lies in the payload is not told."""
        begun: list[BegunField] = []
        try:
            members = unwrap(payload)
            for leaf in self.leaves:
                value: Value = members
                for name in leaf.field.path:
                    value = value.get(name) if isinstance(value, dict) else None
                read = None if value is None else leaf.read(value)
                begun.append(
                    BegunField(from_byte=0, until_byte=len(payload), value=read)
                )
                if leaf.field.column == until:
                    break
        except (DecodeError, Fault):
            return BegunEvent(fields=tuple(begun), failed_at=0)
        return BegunEvent(fields=tuple(begun), failed_at=None)

    def _take(
        self,
        branch: JsonBranch,
        members: dict[str, Value],
        record: EventRecord,
        at: tuple[str, ...],
        unnamed: list[str],
    ) -> dict[str, Value]:
        """Put the values of an object into the record; return what is not named."""
        rest: dict[str, Value] = {}
        for name, value in members.items():
            target = branch.members.get(name)
            try:
                if target is None:
                    if self.envelope and ROW not in {name, *at[:1]}:
                        continue
                    self._refuse_unknown()
                    unnamed.append(unnamed_path((*at, name)))
                    rest[name] = value
                elif value is None:
                    continue
                elif isinstance(target, JsonLeaf):
                    record[target.field.column] = target.read(value)
                else:
                    inner = self._take(
                        target, _object(value), record, (*at, name), unnamed
                    )
                    if inner:
                        rest[name] = inner
            except Fault as exc:
                exc.path.append(name)
                raise
        return rest

    def _refuse_unknown(self) -> None:
        if self.unknown == "refuse":
            raise Fault(ReasonCode.UNKNOWN_FIELD, "the contract does not name it")

    def _require(self, record: EventRecord) -> None:
        for leaf in self.leaves:
            if leaf.field.is_required and record[leaf.field.column] is None:
                fault = Fault(ReasonCode.MISSING_FIELD, "missing or null")
                fault.path += reversed(leaf.field.path)
                raise fault

    def _read_rest(self, rest: object) -> dict[str, Value]:
        try:
            return parse_document(str(rest).encode())
        except (DecodeError, ValueError) as exc:
            raise _misfit(str(self.rest), f"expected an object, got {rest!r}") from exc


def _object(value: Value) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise Fault(ReasonCode.WRONG_TYPE, f"expected an object, got {show(value)}")
    return value


def unnamed_path(path: tuple[str, ...]) -> str:
    """Write the path of a field that is not named, shortened."""
    return shorten(write_path(path), UNNAMED_CHARACTERS_MAX)


@lru_cache(maxsize=256)
def compile_codec(text: str) -> JsonCodec:
    """Return the codec of a contract by its canonical text, compiled once."""
    named = fields_of(text)
    leaves = tuple(
        JsonLeaf(field=one, read=compile_reader(one), write=compile_writer(one))
        for one in named.fields
        if one.path
    )
    root = JsonBranch()
    for leaf in leaves:
        branch = root
        *outer, last = leaf.field.path
        for name in outer:
            inner = branch.members.setdefault(name, JsonBranch())
            assert isinstance(inner, JsonBranch), "no path is inside of another"
            branch = inner
        branch.members[last] = leaf
    if named.envelope:
        root.members.setdefault(ROW, JsonBranch())
    return JsonCodec(
        root=root,
        leaves=leaves,
        unknown=named.unknown,
        rest=next((one.column for one in named.fields if not one.path), None),
        envelope=named.envelope,
    )


def _scan(
    text: str,
    root: JsonBranch,
    spans: dict[tuple[str, ...], tuple[int, int, Value]],
) -> int | None:
    """Note where the named values lie, up to what cannot be read; return where."""
    start = len(text) - len(text.lstrip(" \t\n\r"))
    if text[start : start + 1] != "{":
        return start
    place = start
    try:
        for place in _walk(text, start, root, (), spans):  # noqa: B007 - kept
            pass
    except Fault:
        return place
    return None


def _walk(
    text: str,
    at: int,
    branch: JsonBranch,
    path: tuple[str, ...],
    spans: dict[tuple[str, ...], tuple[int, int, Value]],
) -> Iterator[int]:
    """Yield each place up to which an object was read; the last is behind it."""
    more, at = begin_items(text, at, "}")
    while more:
        yield at
        name, at = read_name(text, at)
        yield at
        target = branch.members.get(name)
        inner = (*path, name)
        read = None
        if isinstance(target, JsonBranch) and text[at : at + 1] == "{":
            for reached in _walk(text, at, target, inner, spans):
                at = reached
                yield at
        else:
            value, stop = read_value(text, at, len(inner))
            if target is not None and inner not in spans:
                read = (at, stop, value)
            at = stop
        more, at = after_item(text, at, "}")
        if read is not None:
            # Not before: of a document that is cut off, a number may be a part.
            spans[inner] = read
    yield at


def _byte(payload: bytes, text: str, at: int) -> int:
    """Return a character's byte; in text that is not UTF-8, about there."""
    return min(byte_of(text, at), len(payload))


def _written(leaf: JsonLeaf, value: object) -> str:
    try:
        return leaf.write(value)
    except (ValueError, OverflowError) as exc:
        saw = shorten(repr(value), UNNAMED_CHARACTERS_MAX)
        raise _misfit(
            leaf.field.column, f"expected {leaf.field.shown_type}, got {saw}"
        ) from exc


def _misfit(column: str, saw: str) -> EncodeError:
    return EncodeError(
        "RECORD_MISFIT",
        saw=f"A record: field {column}: {saw}.",
        why="Readers would not get back the value that was written.",
        fix="Correct the value, or the field's type.",
    )


_Nested = dict[str, "_Nested | str"]


def _nest(parts: dict[tuple[str, ...], str]) -> _Nested:
    document: _Nested = {}
    for path, text in parts.items():
        members = document
        for name in path[:-1]:
            inner = members.setdefault(name, {})
            assert isinstance(inner, dict), "no path is inside of another"
            members = inner
        members[path[-1]] = text
    return document


def _merge(document: _Nested, rest: dict[str, Value], branch: JsonBranch) -> None:
    for name, value in rest.items():
        target = branch.members.get(name)
        if target is None:
            document[name] = canonical_text(value)
            continue
        inner = document.setdefault(name, {})
        if not (
            isinstance(target, JsonBranch)
            and isinstance(value, dict)
            and isinstance(inner, dict)
        ):
            raise _misfit("rest", f"{name} is a field of its own")
        _merge(inner, value, target)


def _wrap(document: _Nested) -> None:
    """Put the row where its operation has it; without one, it was created."""
    row = document.pop(ROW, None)
    operation = document.setdefault(OP, '"c"')
    if row is None:
        return
    image = IMAGES.get(str(operation).strip('"'))
    if image is None:
        raise _misfit(ROW, f"{OP} is {operation}, which has no row")
    there = document.setdefault(image, row)
    if there is not row:
        if not isinstance(there, dict) or not isinstance(row, dict):
            raise _misfit(ROW, f"{image} is a field of its own")
        for name, value in row.items():
            if there.setdefault(name, value) != value:
                raise _misfit(ROW, f"{name} is another in {image}")


def _join(document: _Nested) -> str:
    members = (
        f"{canonical_string(name)}:{one if isinstance(one, str) else _join(one)}"
        for name, one in document.items()
    )
    return f"{{{','.join(members)}}}"
