"""Decode a whole batch of payloads to columns, as strictly as a single one.

The decoder tells of a hundred thousand payloads what ``Avro.decode`` tells of one, in
a thousandth of the time: which of them are events, and what their fields hold.
``Avro.diagnose`` says why a single payload is not an event.

The types of columns are those of Spark's ``from_avro``: every kind of timestamp in
microseconds, text for an enum or a UUID, bytes for ``fixed``. What is beyond Spark is
text: a time as ``12:34:56.000000``, a duration in ISO 8601, a wide decimal with all
digits of its scale, a value with parts as JSON.
"""

from __future__ import annotations

import datetime as dt
import io
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallyweir.schemas.formats.avro.avro_format import Avro
from tallyweir.schemas.formats.avro.avro_values import (
    decimal_text,
    default_value,
    duration_text,
    fastavro_schema,
)
from tallyweir.schemas.formats.avro.byte_cursor import (
    BoolArray,
    ByteCursor,
    Content,
    I64Array,
    WordArray,
)
from tallyweir.schemas.formats.avro.column_texts import (
    find_bad_texts,
    find_no_uuids,
    gather_bytes,
    gather_texts,
)
from tallyweir.schemas.formats.avro.column_walk import (
    Read,
    Reading,
    Walk,
    compile_read,
    compile_walk,
)
from tallyweir.schemas.formats.avro.compatibility import find_source
from tallyweir.schemas.formats.avro.nested_json import compile_json
from tallyweir.schemas.formats.decoded_columns import (
    UNKNOWN_IDS_MAX,
    DecodedEvents,
    arrow_type,
    column_types,
)
from tallyweir.schemas.formats.framing import (
    HEADER_BYTES,
    MAGIC,
    Framing,
    split,
)
from tallyweir.schemas.schema_tree import (
    NANOS_PER_MICRO,
    Enumeration,
    Fixed,
    Primitive,
    Record,
    RecordField,
    SchemaNode,
    is_beyond_spark,
    is_flat,
    item_of,
)

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContract, EventContracts


Fill = Callable[[ByteCursor, Reading], pa.Array]
"""Makes a column without nulls; flags rows that hold no value of their type."""

_MICROS_PER_MILLI = 1_000
_ALONE = "tallyweir_alone"


def compile_fill(reader: SchemaNode, writer: SchemaNode) -> Fill:
    """Build the function that turns a writer's values into the reader's column.

    Args:
        reader: The column's type.
        writer: The type that ``compile_read`` read; the reader can resolve it.
    """
    read, written = item_of(reader), item_of(writer)
    if isinstance(written, Enumeration):
        assert isinstance(read, Enumeration), "an enum is read as an enum"
        return _fill_symbols(read, written)
    if is_beyond_spark(read):
        return _compile_beyond(read, written)
    assert isinstance(written, Primitive | Fixed), "Spark reads a type with parts"
    kind = arrow_type(read)
    match written:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            fill = _fill_wide(kind)
        case Fixed() | Primitive(kind="bytes"):
            fill = _fill_bytes
        case Primitive(kind="string"):
            fill = _fill_texts(kind, is_uuid=written.logical == "uuid")
        case Primitive(kind="boolean"):
            fill = _fill_booleans
        case Primitive():
            is_millis = str(written.logical).endswith("-millis")
            fill = _fill_numbers(kind, _MICROS_PER_MILLI if is_millis else 1)
    return fill


def _compile_beyond(reader: SchemaNode, writer: SchemaNode) -> Fill:
    match writer:
        case Primitive(logical="time-millis"):
            fill = _fill_times(_MICROS_PER_MILLI)
        case Primitive(logical="time-micros"):
            fill = _fill_times(1)
        case Primitive(logical="timestamp-nanos" | "local-timestamp-nanos"):
            fill = _fill_nanos(arrow_type(reader))
        case Primitive() | Fixed(logical="decimal"):
            fill = _fill_each(partial(_decimal_text, writer.scale))
        case Fixed(logical="uuid"):
            fill = _fill_each(_uuid_text)
        case Fixed():
            fill = _fill_each(duration_text)
        case _:
            fill = _fill_each(_nested_text(reader, writer))
    return fill


def fill_default(node: SchemaNode, default: object, rows: int) -> pa.Array:
    """Make a column of a field's default, as it stands in the schema's JSON."""
    kind = arrow_type(node)
    if default is None:
        return pa.nulls(rows, kind)
    value = _default_value(item_of(node), default)
    return pa.repeat(pa.scalar(value, kind), rows)


def with_nulls(column: pa.Array, is_valid: BoolArray | None) -> pa.Array:
    """Return a column of the same values, with nulls where it is not valid.

    Args:
        column: A column without an offset.
        is_valid: Which rows are valid; also covers the nulls that the column already
            has. None if every row is valid.
    """
    if is_valid is None or column.null_count == len(column):
        return column
    buffers = column.buffers()
    buffers[0] = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), buffers)


def make_column(
    fill: Fill, kind: pa.DataType, cursor: ByteCursor, reading: Reading
) -> pa.Array:
    """Make a column of the values read; the caller adds the nulls."""
    if len(reading.values) == 0:
        return pa.nulls(cursor.at.size, kind)
    return fill(cursor, reading)


def _fill_symbols(reader: Enumeration, writer: Enumeration) -> Fill:
    known = set(reader.symbols)
    read_as = [one if one in known else reader.default for one in writer.symbols]
    symbols = pa.array(read_as, pa.string())

    def fill(_: ByteCursor, reading: Reading) -> pa.Array:
        return symbols.take(pa.array(reading.values))

    return fill


def _fill_texts(kind: pa.DataType, *, is_uuid: bool) -> Fill:
    is_read_as_bytes = kind == pa.binary()

    def fill(cursor: ByteCursor, reading: Reading) -> pa.Array:
        spans = reading.values
        texts = gather_texts(cursor.content, spans)
        bad = find_bad_texts(texts)
        if bad:
            cursor.is_bad[bad] = True
            # A column of texts must hold valid UTF-8 even in rows that become null.
            spans[bad, 1] = spans[bad, 0]
            texts = gather_texts(cursor.content, spans)
        if is_uuid:
            cursor.is_bad[find_no_uuids(texts, reading.is_present)] = True
        return texts.view(kind) if is_read_as_bytes else texts

    return fill


def _fill_bytes(cursor: ByteCursor, reading: Reading) -> pa.Array:
    return gather_bytes(cursor.content, reading.values)


def _fill_booleans(_: ByteCursor, reading: Reading) -> pa.Array:
    bits = pa.py_buffer(np.packbits(reading.values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(reading.values), [None, bits])


def _fill_wide(kind: pa.DataType) -> Fill:
    def fill(_: ByteCursor, reading: Reading) -> pa.Array:
        values = reading.values
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

    return fill


def _fill_numbers(kind: pa.DataType, factor: int) -> Fill:
    storage = _storage(kind)

    def fill(_: ByteCursor, reading: Reading) -> pa.Array:
        values = reading.values if factor == 1 else reading.values * factor
        values = values.astype(storage, copy=False)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

    def fill_floats(cursor: ByteCursor, reading: Reading) -> pa.Array:
        # NaN stays NaN in the cast; numpy would warn about it.
        with np.errstate(invalid="ignore"):
            return fill(cursor, reading)

    return fill_floats if pa.types.is_floating(kind) else fill


def _fill_times(factor: int) -> Fill:
    fill_counts = _fill_numbers(pa.time64("us"), factor)

    def fill(cursor: ByteCursor, reading: Reading) -> pa.Array:
        return fill_counts(cursor, reading).cast(pa.string())

    return fill


def _fill_nanos(kind: pa.DataType) -> Fill:
    fill_micros = _fill_numbers(kind, 1)

    def fill(cursor: ByteCursor, reading: Reading) -> pa.Array:
        return fill_micros(cursor, Reading(reading.values // NANOS_PER_MICRO))

    return fill


def _fill_each(text_of: Callable[[bytes], str]) -> Fill:
    """Write the bytes of one row after another as text."""

    def fill(cursor: ByteCursor, reading: Reading) -> pa.Array:
        is_good = ~cursor.is_bad
        if reading.is_present is not None:
            is_good &= reading.is_present
        content = cursor.content.bytes
        texts: list[str] = [""] * len(is_good)
        for row in np.flatnonzero(is_good).tolist():
            start, stop = reading.values[row]
            texts[row] = text_of(content[start:stop].tobytes())
        return pa.array(texts, pa.string())

    return fill


def _nested_text(reader: SchemaNode, writer: SchemaNode) -> Callable[[bytes], str]:
    # A record of one field takes no more bytes, and fastavro parses only records once.
    schemas = [
        fastavro_schema(
            Record(name=_ALONE, fields=(RecordField(name=_ALONE, node=node),))
        )
        for node in (writer, reader)
    ]
    write = compile_json(reader)

    def text_of(body: bytes) -> str:
        read = fastavro.schemaless_reader(io.BytesIO(body), *schemas)
        assert isinstance(read, dict), "a record was read"
        return write(read[_ALONE])

    return text_of


def _decimal_text(scale: int, raw: bytes) -> str:
    return decimal_text(int.from_bytes(raw, signed=True), scale)


def _uuid_text(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))


def _storage(kind: pa.DataType) -> npt.DTypeLike:
    if pa.types.is_floating(kind):
        return np.float32 if kind == pa.float32() else np.float64
    return np.int32 if kind.bit_width == 32 else np.int64  # noqa: PLR2004


def _default_value(node: SchemaNode, default: object) -> object:
    """Return a default as the value that Arrow accepts for the column's type."""
    value = default_value(node, default)
    if not is_flat(node):
        return compile_json(node)(value)
    match value:
        case dt.time():
            return value.isoformat("microseconds")
        case Decimal() if is_beyond_spark(node):
            return f"{value:f}"
        case uuid.UUID():
            # A text stays as it was written.
            return default if isinstance(node, Primitive) else str(value)
        case int() if isinstance(node, Primitive) and node.kind in {"float", "double"}:
            return float(value)
        case _:
            return value


_HEADER_MASK = (1 << 8 * HEADER_BYTES) - 1
_NO_HEADER = -1
_NO_BYTES = np.zeros(0, dtype=np.uint8)
_WORD_BYTES = 8


class ColumnDecoder:
    """Decodes the events of one pipeline.

    It is built in milliseconds. Unpickling builds it again.
    """

    def __init__(self, contracts: EventContracts, wanted: Collection[str]) -> None:
        """Prepare for all writers of all contracts.

        Args:
            contracts: As in ``Format.decoder``, and so is ``wanted``.
            wanted: The fields to return.
        """
        self._contracts = contracts
        self._wanted = tuple(wanted)
        self._types = column_types(contracts, self._wanted)
        form = contracts.format
        assert isinstance(form, Avro), "this decodes Avro"
        self._framing = form.framing
        self._writers = {
            form.framing.header(writer): _WriterPlan(one, writer, self._types)
            for one in contracts.each
            for writer in one.writers.values()
        }

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._contracts, self._wanted)

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch of payloads; see ``EventDecoder.decode``."""
        rows = len(payloads)
        content, starts, ends, has_header = _open(payloads, self._framing.header_bytes)
        heads = _Headers(content, starts, has_header, self._framing)
        size = self._framing.header_bytes
        written = [
            (plan, is_written)
            for header, plan in self._writers.items()
            if (is_written := heads.are(header)).any()
        ]
        unknown_ids = heads.unknown_ids([one for _, one in written])
        if len(written) == 1:
            # Keeping the rows without a known writer costs less than excluding them.
            plan, is_written = written[0]
            at = np.minimum(starts + size, ends)
            decoded = plan.decode(ByteCursor(content, at, ends, ~is_written))
            return replace(decoded, unknown_ids=unknown_ids)
        parts: list[tuple[I64Array, DecodedEvents]] = []
        for plan, is_written in written:
            chosen = np.flatnonzero(is_written)
            cursor = ByteCursor(content, starts[chosen] + size, ends[chosen])
            parts.append((chosen, plan.decode(cursor)))
        return replace(self._join(parts, rows), unknown_ids=unknown_ids)

    def _join(
        self, parts: Sequence[tuple[I64Array, DecodedEvents]], rows: int
    ) -> DecodedEvents:
        """Put the rows of several writers, or of no writer, back in their order."""
        is_event = np.zeros(rows, dtype=np.bool_)
        places = np.zeros(rows, dtype=np.int64)
        is_placed = np.zeros(rows, dtype=np.bool_)
        before = 0
        for chosen, part in parts:
            is_event[chosen] = part.is_event
            is_placed[chosen] = True
            places[chosen] = np.arange(before, before + chosen.size)
            before += chosen.size
        order = pa.array(places, mask=~is_placed)
        columns = {
            name: pa.concat_arrays(
                [pa.nulls(0, kind), *(part.columns[name] for _, part in parts)]
            ).take(order)
            for name, kind in self._types.items()
        }
        return DecodedEvents(columns=columns, is_event=is_event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """How one column is made from a writer's field."""

    name: str
    kind: pa.DataType
    fill: Fill


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What to do with one field of a writer: read it, or only walk past it."""

    walk: Walk
    read: Read | None
    columns: Sequence[_Column]


class _WriterPlan:
    """How the events of one writer become the columns of a pipeline."""

    def __init__(
        self, one: EventContract, writer: Contract, types: Mapping[str, pa.DataType]
    ) -> None:
        self._names = tuple(types)
        self._lacking = {
            name: kind for name, kind in types.items() if name not in one.names
        }
        self._defaults: dict[str, tuple[SchemaNode, object]] = {}
        written = {field.name: field for field in writer.tree.fields}
        wanted: dict[str, list[_Column]] = {name: [] for name in written}
        for field in one.contract.tree.fields:
            if field.name not in types:
                continue
            source = find_source(field, written)
            if source is None:
                self._defaults[field.name] = (field.node, field.default)
                continue
            column = _Column(
                name=field.name,
                kind=types[field.name],
                fill=compile_fill(field.node, source.node),
            )
            wanted[source.name].append(column)
        self._steps = [
            _Step(
                walk=compile_walk(field.node),
                read=compile_read(field.node) if wanted[field.name] else None,
                columns=wanted[field.name],
            )
            for field in writer.tree.fields
        ]

    def decode(self, cursor: ByteCursor) -> DecodedEvents:
        """Decode the payloads of one or more rows; the cursor is past the headers."""
        made: list[tuple[str, pa.Array, Reading]] = []
        for step in self._steps:
            if step.read is None:
                step.walk(cursor)
                continue
            reading = step.read(cursor)
            for one in step.columns:
                column = make_column(one.fill, one.kind, cursor, reading)
                made.append((one.name, column, reading))
        is_event = ~cursor.is_bad & (cursor.at == cursor.ends)
        rows = is_event.size
        valid = None if is_event.all() else is_event
        columns = {name: pa.nulls(rows, kind) for name, kind in self._lacking.items()}
        for name, (node, default) in self._defaults.items():
            columns[name] = with_nulls(fill_default(node, default, rows), valid)
        for name, column, reading in made:
            columns[name] = with_nulls(column, _both(valid, reading.is_present))
        in_order = {name: columns[name] for name in self._names}
        return DecodedEvents(columns=in_order, is_event=is_event)


def open_payloads(payloads: pa.Array) -> tuple[I64Array, Content, I64Array, I64Array]:
    """Find each payload's place in the batch's content, and Confluent's header.

    Returns:
        The headers as numbers, below zero for a payload without one; the content; the
        starts and the ends of the payloads in it.
    """
    content, starts, ends, has_header = _open(payloads, HEADER_BYTES)
    if not starts.size:
        return starts, content, starts, ends
    headers = (content.words_at(starts) & _HEADER_MASK).view(np.int64)
    if not has_header.all():
        headers[~has_header] = _NO_HEADER
    return headers, content, starts, ends


def _open(
    payloads: pa.Array, header_bytes: int
) -> tuple[Content, I64Array, I64Array, BoolArray]:
    """Find each payload's place in the batch's content.

    Returns:
        The content; the starts and the ends of the payloads in it; which payloads have
        more than nothing, and as many bytes as a header.
    """
    is_large = pa.types.is_large_binary(payloads.type)
    assert is_large or pa.types.is_binary(payloads.type), payloads.type
    rows, first = len(payloads), payloads.offset
    _, offsets, data = payloads.buffers()
    if rows == 0 or data is None:
        nothing = np.zeros(rows, dtype=np.int64)
        return Content(_NO_BYTES), nothing, nothing, np.zeros(rows, dtype=np.bool_)
    every = np.frombuffer(offsets, dtype=np.int64 if is_large else np.int32)
    places = every[first : first + rows + 1].astype(np.int64)
    content = Content(np.frombuffer(data, np.uint8)[places[0] : places[-1]])
    places -= places[0]
    starts, ends = places[:-1], places[1:]
    has_header = ends - starts >= max(header_bytes, 1)
    if payloads.null_count:
        has_header &= np.asarray(payloads.is_valid())
    return content, starts, ends, has_header


class _Headers:
    """The headers of a batch's payloads, of which a word holds all but the magic.

    A header of up to eight bytes is one word; the word of a longer one follows its
    magic, which is looked at first.
    """

    def __init__(
        self,
        content: Content,
        starts: I64Array,
        has_header: BoolArray,
        framing: Framing,
    ) -> None:
        size = framing.header_bytes
        self._skipped = len(framing.magic) if size > _WORD_BYTES else 0
        self._has_header = None if has_header.all() else has_header
        self._words: WordArray | None = None
        if size == 0 or not starts.size:
            self._has_header = has_header
            return
        if self._skipped:
            magic = int.from_bytes(framing.magic, "little")
            mask = np.uint64((1 << 8 * self._skipped) - 1)
            self._has_header = has_header & (content.words_at(starts) & mask == magic)
        mask = np.uint64((1 << 8 * (size - self._skipped)) - 1)
        self._words = content.words_at(starts + self._skipped) & mask

    def are(self, header: bytes) -> BoolArray:
        """Tell which payloads have a header."""
        if self._words is None:
            assert self._has_header is not None, "nothing else is known of raw payloads"
            return self._has_header
        number = np.uint64(int.from_bytes(header[self._skipped :], "little"))
        found: BoolArray = self._words == number
        return found if self._has_header is None else found & self._has_header

    def unknown_ids(self, written: Sequence[BoolArray]) -> frozenset[int]:
        """Return the schema ids in Confluent headers that are none of those written."""
        if self._words is None or self._skipped:
            return frozenset()
        if sum(map(np.count_nonzero, written)) == self._words.size:
            return frozenset()
        is_unknown = np.ones(self._words.size, dtype=np.bool_)
        for one in written:
            is_unknown &= ~one
        if self._has_header is not None:
            is_unknown &= self._has_header
        found = np.unique(self._words[is_unknown])
        # The payload's first byte is the number's lowest.
        found = found[found & 0xFF == MAGIC][:UNKNOWN_IDS_MAX]
        ids = (split(one.to_bytes(HEADER_BYTES, "little"))[0] for one in found.tolist())
        return frozenset(one for one in ids if one > 0)


def _both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other
