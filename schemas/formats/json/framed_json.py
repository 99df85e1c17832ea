"""JSON documents behind a schema registry's ids, as a format.

A payload is a document with Confluent's header in front. The columns are those that the
pipeline names, or those of the version that it has pinned, and a document names its
fields itself. So the id says nothing that is needed: it is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from tallyweir.schemas.formats.format import BegunEvent, Damage, EventRecord
from tallyweir.schemas.formats.framing import HEADER_BYTES, frame, split
from tallyweir.schemas.formats.json.json_damages import DAMAGES
from tallyweir.schemas.formats.json.json_format import Json

if TYPE_CHECKING:
    from tallyweir.schemas.contract import Contract
    from tallyweir.schemas.event_contracts import EventContracts
    from tallyweir.schemas.formats.decoded_columns import EventDecoder


def _behind_header(damage: Damage) -> Damage:
    """Return the same damage to a document behind a header."""
    return lambda payload, contract, source: (
        payload[:HEADER_BYTES] + damage(payload[HEADER_BYTES:], contract, source)
    )


def _bad_magic(payload: bytes, _: Contract, __: Random) -> bytes:
    return payload[HEADER_BYTES:]


@dataclass(frozen=True, slots=True)
class FramedJson(Json):
    """JSON documents, each behind a magic byte and an id that is not looked at."""

    registry_kind: ClassVar[str] = "JSON"
    described: ClassVar[str] = "JSON documents behind a registry's ids"
    damages: ClassVar[Mapping[str, Damage]] = {
        **{name: _behind_header(damage) for name, damage in DAMAGES.items()},
        # It looks at whole payloads.
        "random_bytes": DAMAGES["random_bytes"],
        "bad_magic": _bad_magic,
    }

    def encode(self, contract: Contract, record: EventRecord) -> bytes:
        return frame(contract.schema_id, Json.encode(self, contract, record))

    def encode_document(self, contract: Contract, document: str) -> bytes:
        body = Json.encode_document(self, contract, document)
        return frame(contract.schema_id, body)

    def decode(
        self, payload: bytes | None, writers: Mapping[int, Contract]
    ) -> EventRecord:
        # A tombstone is one with and without a header.
        body = None if payload is None else split(payload)[1]
        return Json.decode(self, body, writers)

    def decode_body(self, body: bytes, contract: Contract) -> EventRecord:
        return Json.decode(self, body, {contract.schema_id: contract})

    def read_begun(
        self, payload: bytes, writer: Contract, *, until: str | None = None
    ) -> BegunEvent:
        begun = Json.read_begun(self, payload[HEADER_BYTES:], writer, until=until)
        return begun.behind(HEADER_BYTES)

    def decoder(
        self, contracts: EventContracts, wanted: Collection[str]
    ) -> EventDecoder:
        # Services know formats, but their image has no Arrow.
        from tallyweir.schemas.formats.json.framed_decoder import FramedDecoder  # noqa: PLC0415

        return FramedDecoder(contracts, wanted)
