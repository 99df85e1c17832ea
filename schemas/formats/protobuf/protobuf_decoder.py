"""Decode a whole batch of messages to columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.decoded_columns import (
    UNKNOWN_IDS_MAX,
    DecodedEvents,
    column_types,
)
from tallyweir.schemas.formats.framing import split
from tallyweir.schemas.formats.protobuf.framed_protobuf import open_message
from tallyweir.schemas.formats.protobuf.protobuf_codec import compile_codec
from tallyweir.schemas.formats.protobuf.wire_walk import MessageFault

if TYPE_CHECKING:
    from tallyweir.schemas.event_contracts import EventContracts

#: The most fields that a batch reports as unnamed.
_UNNAMED_MAX = 64
#: How many rows one message is used for: making one takes time, and it keeps the memory
#: of what it has parsed.
_ROWS_OF_A_MESSAGE = 256


class ProtobufDecoder:
    """Decodes the events of one pipeline. Unpickling builds it again."""

    def __init__(self, contracts: EventContracts, wanted: Collection[str]) -> None:
        """Prepare for the contract.

        Args:
            contracts: As in ``Format.decoder``, and so is ``wanted``.
            wanted: The fields to return.
        """
        self._contracts = contracts
        self._wanted = tuple(wanted)
        (one,) = contracts.each
        self._codec = compile_codec(one.contract.text)
        names = [one.name for one in self._codec.columns]
        self._columns = [
            (name, names.index(name), kind)
            for name, kind in column_types(contracts, self._wanted).items()
        ]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._contracts, self._wanted)

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch of messages; see ``EventDecoder.decode``."""
        return self.decode_each(payloads.to_pylist())

    def decode_each(self, messages: Sequence[bytes | None]) -> DecodedEvents:
        """Decode a batch of messages; None is no event."""
        read, message = self._codec.read_into, None
        rows: list[tuple[object, ...]] = []
        canonical: list[bytes | None] = []
        unnamed: Counter[str] = Counter()
        nothing: tuple[object, ...] = (None,) * len(self._codec.fields)
        for row, payload in enumerate(messages):
            if row % _ROWS_OF_A_MESSAGE == 0:
                message = self._codec.message()
            values, written = nothing, None
            try:
                if payload is not None:
                    values, written, others = read(message, payload)
                    if others:
                        unnamed.update(others)
            except MessageFault:
                pass
            rows.append(values)
            canonical.append(written)
        columns = list(zip(*rows, strict=True)) or [()] * len(nothing)
        return DecodedEvents(
            columns={
                name: pa.array(columns[place], kind)
                for name, place, kind in self._columns
            },
            is_event=np.array([one is not None for one in canonical], dtype=np.bool_),
            canonical=pa.array(canonical, pa.binary()),
            unnamed=dict(unnamed.most_common(_UNNAMED_MAX)),
        )


class FramedProtobufDecoder(ProtobufDecoder):
    """Decodes the messages behind the headers; see ``FramedProtobuf``."""

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch of framed messages; see ``EventDecoder.decode``."""
        messages: list[bytes | None] = []
        unknown_ids: set[int] = set()
        # What stood in front of the message before: mostly the same.
        front = b""
        for payload in payloads.to_pylist():
            if front and payload is not None and payload.startswith(front):
                messages.append(payload[len(front) :])
                continue
            message = self._message(payload, unknown_ids)
            messages.append(message)
            if payload is not None and message is not None:
                front = payload[: len(payload) - len(message)]
        decoded = self.decode_each(messages)
        return replace(decoded, unknown_ids=frozenset(unknown_ids))

    def _message(self, payload: bytes | None, unknown_ids: set[int]) -> bytes | None:
        """Return a payload's message; None if it has none of the contract's."""
        try:
            schema_id, _ = split(payload)
            writer = self._contracts.writers.get(schema_id)
            if writer is not None:
                return open_message(payload, {schema_id: writer})[1]
        except DecodeError:
            return None
        if schema_id > 0 and len(unknown_ids) < UNKNOWN_IDS_MAX:
            unknown_ids.add(schema_id)
        return None
