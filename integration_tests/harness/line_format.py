"""A format that the product does not have: an event is a line of texts between bars.

It is all that a new format needs, but for its place among those that are known. The
file of a contract has a line for each field, with its name and its type; a type that
ends in a question mark may be null, which an empty text stands for.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import ContractError, DecodeError, EncodeError, ReasonCode
from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.formats.decoded_columns import DecodedEvents, column_types
from tallyweir.schemas.formats.format import (
    BegunEvent,
    BegunField,
    Damage,
    EventRecord,
    Format,
    Schema,
)
from tallyweir.schemas.record_check import MisfitError, compile_check
from tallyweir.schemas.schema_tree import (
    Nullable,
    Primitive,
    Record,
    RecordField,
    SchemaNode,
    item_of,
)

_BAR = "|"
_NODES: dict[str, SchemaNode] = {
    "string": Primitive(kind="string"),
    "int": Primitive(kind="int"),
    "timestamp-micros": Primitive(kind="long", logical="timestamp-micros"),
}
_READERS: dict[str, Callable[[str], object]] = {
    "string": str,
    "int": int,
    "timestamp-micros": dt.datetime.fromisoformat,
}


@dataclass(frozen=True, slots=True)
class Lines(Format):
    """Lines of texts; nothing in them names the contract."""

    suffix: ClassVar[str] = ".lines"
    names_writers: ClassVar[bool] = False
    media_type: ClassVar[str] = "text/x-lines"
    damages: ClassVar[Mapping[str, Damage]] = {
        "cut": lambda payload, _, source: payload[: source.randrange(len(payload) // 2)]
    }

    def read_schema(self, content: bytes, path: Path, part: str = "") -> Schema:
        del part
        fields = []
        for line in content.decode().splitlines():
            name, _, kind = line.partition(" ")
            node = _NODES.get(kind.removesuffix("?"))
            if node is None:
                raise ContractError(
                    "CONTRACT_MALFORMED",
                    saw=f"{path} has the line {line!r}.",
                    why="That is not a field.",
                    fix=f"Write NAME and one of {', '.join(_NODES)}.",
                )
            if kind.endswith("?"):
                node = Nullable(item=node)
            fields.append(RecordField(name=name, node=node))
        return Schema(
            text=content.decode(), tree=Record(name=path.stem, fields=tuple(fields))
        )

    def find_incompatibilities(self, reader: Record, writer: Record) -> list[str]:
        return [] if reader.fields == writer.fields else ["the fields differ"]

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        try:
            compile_check(contract.tree)(record)
        except MisfitError as exc:
            raise EncodeError(
                "RECORD_MISFIT",
                saw=f"A record of {contract.name}: {exc}.",
                why="Readers would not get back the value that was written.",
                fix="Correct the value.",
            ) from exc
        values = (record.get(field.name) for field in contract.fields)
        return _BAR.join("" if one is None else str(one) for one in values).encode()

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        (writer,) = writers.values()
        begun = self.read_begun(payload or b"", writer)
        if begun.failed_at is not None:
            failed = writer.fields[len(begun.fields)]
            raise DecodeError(
                ReasonCode.MALFORMED,
                f"field {failed.name}: no {failed.type} at byte {begun.failed_at}",
            )
        if begun.fields[-1].until_byte <= len(payload or b""):
            raise DecodeError(ReasonCode.TRAILING_BYTES, "there are more texts")
        names = (field.name for field in writer.fields)
        return dict(zip(names, (one.value for one in begun.fields), strict=True))

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        begun: list[BegunField] = []
        place = 0
        for field in writer.tree.fields:
            try:
                text = _text_at(payload, place)
                value = _read(field.node, text)
            except ValueError:
                return BegunEvent(fields=tuple(begun), failed_at=place)
            end = place + len(text.encode()) + len(_BAR)
            begun.append(BegunField(from_byte=place, until_byte=end, value=value))
            place = end
            if field.name == until:
                break
        return BegunEvent(fields=tuple(begun), failed_at=None)

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> _LineDecoder:
        return _LineDecoder(contracts, tuple(wanted))


@dataclass(frozen=True, slots=True)
class _LineDecoder:
    contracts: EventContracts
    wanted: tuple[str, ...]

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        records: list[EventRecord | None] = []
        for payload in payloads.to_pylist():
            try:
                record = self.contracts.format.decode(payload, self.contracts.writers)
            except DecodeError:
                record = None
            records.append(record)
        types = column_types(self.contracts, self.wanted)
        return DecodedEvents(
            columns={
                name: pa.array([one and one[name] for one in records], kind)
                for name, kind in types.items()
            },
            is_event=np.array([one is not None for one in records], dtype=np.bool_),
        )


def _text_at(payload: bytes, place: int) -> str:
    """Return the text that begins at a place; raise ``ValueError`` if none does."""
    if place > len(payload):
        raise ValueError(place)
    return payload[place:].partition(_BAR.encode())[0].decode()


def _read(node: SchemaNode, text: str) -> object:
    if isinstance(node, Nullable) and not text:
        return None
    item = item_of(node)
    assert isinstance(item, Primitive)
    return _READERS[item.logical or item.kind](text)
