"""Decode a whole batch of documents to columns, as strictly as a single one."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pyarrow as pa

from tallyweir.schemas.formats.decoded_columns import DecodedEvents, column_types
from tallyweir.schemas.formats.json.json_codec import compile_codec
from tallyweir.schemas.formats.json.json_rows import RowDecoder

if TYPE_CHECKING:
    from tallyweir.schemas.event_contracts import EventContracts


class JsonDecoder:
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
        self._rows = RowDecoder(
            compile_codec(contract.text), column_types(contracts, self._wanted)
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._contracts, self._wanted)

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch of documents; see ``EventDecoder.decode``."""
        return self._rows.decode(payloads.to_pylist())
