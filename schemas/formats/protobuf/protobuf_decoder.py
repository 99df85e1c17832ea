"""Decode a whole batch of messages to columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tallyweir.schemas.formats.decoded_columns import DecodedEvents, column_types
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
        (contract,) = contracts.writers.values()
        self._codec = compile_codec(contract.text)
        names = [one.name for one in self._codec.columns]
        self._columns = [
            (name, names.index(name), kind)
            for name, kind in column_types(contracts, self._wanted).items()
        ]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._contracts, self._wanted)

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch of messages; see ``EventDecoder.decode``."""
        read, message = self._codec.read_into, None
        rows: list[tuple[object, ...]] = []
        canonical: list[bytes | None] = []
        unnamed: Counter[str] = Counter()
        nothing: tuple[object, ...] = (None,) * len(self._codec.fields)
        for row, payload in enumerate(payloads.to_pylist()):
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
