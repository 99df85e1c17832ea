"""Avro in its framings, as a format.

``Avro.decode`` and ``ColumnDecoder`` accept the same payloads: those that follow Avro's
rules to the last byte. The second decodes the events of a running pipeline; the first
serves what looks at one event, and the diagnosis of dead letters.

``AvroCodec.read`` returns every record that ``write`` accepts unchanged. ``walk``
accepts only bodies that follow Avro's rules, so a lenient decoder's guesses never
become events.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, cast

from tallyweir.schemas.errors import (
    ContractError,
    DecodeError,
    EncodeError,
    ReasonCode,
    noting,
    raise_faults,
)
from tallyweir.schemas.formats.avro.compatibility import find_incompatibilities
from tallyweir.schemas.formats.avro.foreign_form import foreign_form, other_framing
from tallyweir.schemas.formats.avro.references import with_references
from tallyweir.schemas.formats.avro.safety import parse_schema
from tallyweir.schemas.formats.avro.strict_walk import (
    MalformedError,
    Walker,
    compile_walker,
)
from tallyweir.schemas.formats.format import (
    SCHEMA_ID_MAX,
    BegunEvent,
    BegunField,
    Damage,
    EventRecord,
    Format,
    Schema,
)
from tallyweir.schemas.formats.framing import (
    Framing,
    frame,
    split,
)
from tallyweir.schemas.record_check import MisfitError, compile_check
from tallyweir.schemas.schema_tree import Record, is_beyond_spark
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroCodec:
    """What the events of one contract need, one at a time.

    Attributes:
        write: Writes a record as a framed payload, or raises ``EncodeError``.
        walk: Checks a body.
        walk_fields: Check the fields of a body, in their order.
        read: Reads a body that ``walk`` has checked, or raises ``DecodeError``.
    """

    write: Callable[[EventRecord], bytes]
    walk: Walker
    walk_fields: tuple[Walker, ...]
    read: Callable[[bytes], EventRecord]


def compile_codec(contract: Contract) -> AvroCodec:
    """Return the codec of a contract, compiled once per process."""
    # A string caches its hash; a contract would compute it again for every record.
    return _compile_schema(contract.text, _framing(contract).header(contract))


@lru_cache(maxsize=256)
def _compile_schema(text: str, header: bytes) -> AvroCodec:
    # Commands that decode nothing know formats too, and must start fast.
    import fastavro  # noqa: PLC0415

    from tallyweir.schemas.formats.avro.avro_values import fastavro_schema  # noqa: PLC0415

    schema = json.loads(text)
    tree = parse_schema(schema)
    parsed = fastavro_schema(tree)
    check = compile_check(tree)
    write_body = fastavro.schemaless_writer
    read_body = fastavro.schemaless_reader

    def write(record: EventRecord) -> bytes:
        stream = io.BytesIO()
        stream.write(header)
        try:
            check(record)
            write_body(stream, parsed, record)
        except Exception as exc:
            # fastavro refuses lone surrogates and decimals with a foreign exponent,
            # with errors of any class.
            raise _misfit(schema, exc) from exc
        return stream.getvalue()

    def read(body: bytes) -> EventRecord:
        try:
            # The contract is a record, so fastavro returns a record.
            return cast(EventRecord, read_body(io.BytesIO(body), parsed, None))
        except Exception as exc:
            # The walker has already refused every bad payload. If fastavro raises
            # all the same, a dead letter must not stop the reader.
            raise DecodeError(
                ReasonCode.MALFORMED, f"{type(exc).__name__}: {exc}"
            ) from exc

    return AvroCodec(
        write=write,
        walk=compile_walker(tree),
        walk_fields=tuple(
            compile_walker(field.node, field.name) for field in tree.fields
        ),
        read=read,
    )


def _misfit(schema: dict[str, object], cause: Exception) -> EncodeError:
    saw = str(cause) if isinstance(cause, MisfitError) else repr(cause)
    return EncodeError(
        "RECORD_MISFIT",
        saw=f"A record of {schema['name']}: {saw}.",
        why="Readers would not get back the value that was written.",
        fix="Correct the value, or make the field nullable in a new version.",
    )


def read_schema(content: bytes, path: Path) -> Schema:
    """Read a schema, which may name its id in ``schema_id``.

    Raises:
        ContractError: ``CONTRACT_MALFORMED`` or ``CONTRACT_SCHEMA_ID``.
        UnsafeContractError: A payload of it could kill a decoder.
    """
    try:
        schema = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise _malformed(path, f"is not JSON ({exc})") from exc
    if not isinstance(schema, dict):
        raise _malformed(path, "is not a JSON object")
    declared_id = schema.pop("schema_id", None)
    faults: list[ContractError] = []
    with noting(faults):
        schema_id = _checked_id(declared_id, path)
    with noting(faults):
        tree = parse_schema(schema)
    raise_faults(faults)
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return Schema(text=text, tree=tree, schema_id=schema_id)


def _malformed(path: Path, saw: str) -> ContractError:
    return ContractError(
        "CONTRACT_MALFORMED",
        saw=f"{path} {saw}.",
        why="The file is not a valid Avro schema.",
        fix="Correct the .avsc file (Avro specification, Schema Declaration).",
    )


def _checked_id(declared: object, path: Path) -> int | None:
    if declared is None:
        return None
    if (
        not isinstance(declared, int)
        or isinstance(declared, bool)
        or not 1 <= declared <= SCHEMA_ID_MAX
    ):
        raise ContractError(
            "CONTRACT_SCHEMA_ID",
            saw=f"{path} has schema_id {json.dumps(declared)[:40]}.",
            why="The id travels as four bytes, and must be positive.",
            fix=f"Write the registry's id, 1 to {SCHEMA_ID_MAX}, or leave it out.",
        )
    return declared


_GARBAGE_BYTES = 16


def _truncated(payload: bytes, contract: Contract, source: Random) -> bytes:
    return payload[: source.randrange(_framing(contract).header_bytes, len(payload))]


def _bad_magic(payload: bytes, contract: Contract, source: Random) -> bytes:
    magic = _framing(contract).magic
    return bytes([magic[0] ^ source.randint(1, 255)]) + payload[1:]


def _unknown_schema(payload: bytes, contract: Contract, source: Random) -> bytes:
    framing = _framing(contract)
    body = payload[framing.header_bytes :]
    if framing is Framing.CONFLUENT:
        other = (contract.schema_id + source.randint(1, 1 << 20)) % (1 << 31)
        return frame(other, body)
    size = framing.header_bytes - len(framing.magic)
    return framing.magic + source.randbytes(size) + body


def _trailing_bytes(payload: bytes, _: Contract, source: Random) -> bytes:
    return payload + source.randbytes(source.randint(1, _GARBAGE_BYTES))


def _random_bytes(_: bytes, contract: Contract, source: Random) -> bytes:
    known = {contract.schema_id: contract}
    header = _framing(contract).header(contract)
    while True:
        size = source.randint(1, 4 * _GARBAGE_BYTES)
        payload = header + source.randbytes(size)
        if contract.format.diagnose(payload, known) is not None:
            return payload


def _framing(contract: Contract) -> Framing:
    assert isinstance(contract.format, Avro), "these are damages of Avro"
    return contract.format.framing


DAMAGES: Mapping[str, Damage] = {
    "truncated": _truncated,
    "bad_magic": _bad_magic,
    "unknown_schema": _unknown_schema,
    "trailing_bytes": _trailing_bytes,
    "random_bytes": _random_bytes,
}
#: The damages of a header, which raw payloads do not have.
_OF_HEADERS = frozenset({"bad_magic", "unknown_schema"})


#: The reasons that a payload without a header gets. The second is possible because an
#: Avro body may begin with a zero byte.
_WITHOUT_HEADER = frozenset({ReasonCode.BAD_MAGIC, ReasonCode.UNKNOWN_SCHEMA})


@dataclass(frozen=True, slots=True)
class Avro(Format):
    """Avro bodies, each behind what names its writer, or alone.

    Attributes:
        framing: What stands in front of a body.
    """

    framing: Framing = Framing.CONFLUENT
    suffix: ClassVar[str] = ".avsc"
    media_type: ClassVar[str] = "avro/binary"
    registry_kind: ClassVar[str] = "AVRO"

    @property
    def names_writers(self) -> bool:
        return self.framing is not Framing.RAW

    @property
    def damages(self) -> Mapping[str, Damage]:
        if self.names_writers:
            return DAMAGES
        return {name: one for name, one in DAMAGES.items() if name not in _OF_HEADERS}

    def read_schema(self, content: bytes, path: Path, part: str = "") -> Schema:
        del part
        return read_schema(content, path)

    def read_registered(self, schema: RegisteredSchema, part: str = "") -> Schema:
        del part
        path = Path(f"schema {schema.schema_id} of the registry")
        texts = [text for _, text in schema.references]
        try:
            whole = with_references(json.loads(schema.text), texts)
            content = json.dumps(whole).encode()
        except (ValueError, RecursionError) as exc:
            raise _malformed(path, f"is not JSON ({exc})") from exc
        return self.read_schema(content, path)

    def find_incompatibilities(self, reader: Record, writer: Record) -> list[str]:
        return find_incompatibilities(reader, writer)

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        return compile_codec(contract).write(record)

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        contract = self.framing.writer_of(payload, writers)
        assert payload is not None
        start = self.framing.header_bytes
        codec = compile_codec(contract)
        try:
            end = codec.walk(payload, start)
        except MalformedError as exc:
            raise DecodeError(ReasonCode.MALFORMED, str(exc)) from exc
        if end != len(payload):
            raise DecodeError(
                ReasonCode.TRAILING_BYTES,
                f"the event ended at byte {end} of {len(payload)}",
            )
        return codec.read(payload[start:])

    def diagnose(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> DecodeError | None:
        error = Format.diagnose(self, payload, writers)
        if error is None or not payload:
            return error
        if self.names_writers and error.reason_code not in _WITHOUT_HEADER:
            return error
        form = _other_framing(payload, writers, self.framing)
        if form is None and error.reason_code is ReasonCode.BAD_MAGIC:
            form = foreign_form(payload)
        if form is None:
            return error
        return DecodeError(error.reason_code, f"{error.detail}; {form}")

    def decode_body(self, body: bytes, contract: Contract) -> EventRecord:
        payload = self.framing.header(contract) + body
        return self.decode(payload, {contract.schema_id: contract})

    def mark(self, contract: Contract) -> bytes:
        return self.framing.header(contract)

    def writer_of(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> Contract | None:
        try:
            return self.framing.writer_of(payload, writers)
        except DecodeError:
            return None

    def schema_id(self, payload: bytes | None) -> int | None:
        if self.framing is not Framing.CONFLUENT:
            return None
        try:
            return split(payload)[0]
        except DecodeError:
            return None

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        position = start = self.framing.header_bytes
        places: list[tuple[int, int]] = []
        failed_at = None
        walks = compile_codec(writer).walk_fields
        for field, walk in zip(writer.fields, walks, strict=True):
            try:
                end = walk(payload, position)
            except MalformedError:
                failed_at = position
                break
            places.append((position, end))
            position = end
            if field.name == until:
                break
        values = _read_values(payload[start:position], writer, len(places))
        fields = tuple(
            BegunField(from_byte=begin, until_byte=end, value=values.get(field.name))
            for field, (begin, end) in zip(writer.fields, places, strict=False)
        )
        return BegunEvent(fields=fields, failed_at=failed_at)

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        # Services know formats, but their image has no Arrow.
        from tallyweir.schemas.formats.avro.column_decoder import ColumnDecoder  # noqa: PLC0415

        return ColumnDecoder(contracts, wanted)

    def spark_expression(
        self, contract: Contract, writers: Mapping[int, Contract], column: str
    ) -> str | None:
        size = self.framing.header_bytes
        header = f"substring({column}, 1, {size})"
        body = f"substring({column}, {size + 1})"
        cases = " ".join(
            f"WHEN {header} = X'{self.framing.header(writer).hex()}' "
            f"THEN {_from_avro(body, contract, writer)}"
            for writer in writers.values()
        )
        return f"CASE {cases} END"


def _other_framing(
    payload: bytes, writers: Mapping[int, Contract], expected: Framing
) -> str | None:
    """Tell whether a payload is an event of a contract, but for its framing."""
    for framing in (one for one in Framing if one is not expected):
        for schema_id, contract in sorted(writers.items()):
            try:
                Avro(framing).decode(payload, {schema_id: contract})
            except DecodeError:
                continue
            return other_framing(contract, framing)
    return None


def _read_values(body: bytes, writer: Contract, count: int) -> Mapping[str, Any]:
    # As in ``_compile_schema``.
    import fastavro  # noqa: PLC0415

    from tallyweir.schemas.formats.avro.avro_values import fastavro_schema  # noqa: PLC0415

    begun = replace(writer.tree, fields=writer.tree.fields[:count])
    try:
        parsed = fastavro_schema(begun)
        read = fastavro.schemaless_reader(io.BytesIO(body), parsed, None)
    except Exception:  # noqa: BLE001 - what the walker passed is to be shown, not judged
        return {}
    return cast(Mapping[str, Any], read)


def _from_avro(body: str, contract: Contract, writer: Contract) -> str:
    options = {"mode": "PERMISSIVE"}
    left = tuple(one for one in contract.tree.fields if not is_beyond_spark(one.node))
    if not left:
        return "NULL"
    if len(left) < len(contract.fields):
        from tallyweir.schemas.formats.avro.avro_values import avro_json  # noqa: PLC0415

        options["avroSchema"] = json.dumps(
            avro_json(replace(contract.tree, fields=left))
        )
    elif writer.schema_id != contract.schema_id:
        options["avroSchema"] = contract.text
    pairs = ", ".join(f"{_literal(k)}, {_literal(v)}" for k, v in options.items())
    return f"from_avro({body}, {_literal(writer.text)}, map({pairs}))"


def _literal(text: str) -> str:
    """Write a text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
