"""Columns of payloads that are one value each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.schemas.formats.decoded_columns import DecodedEvents

if TYPE_CHECKING:
    from tallyweir.schemas.event_contracts import EventContracts

_LONG_BYTES = 8


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """Decodes whole batches of plain values; it can be pickled."""

    contracts: EventContracts
    wanted: tuple[str, ...]

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch, as ``EventDecoder.decode`` promises."""
        payloads = payloads.cast(pa.binary())
        (contract,) = self.contracts.writers.values()
        (field,) = contract.fields
        is_long = contract.text == "bigint"
        is_value = _are_longs(payloads) if is_long else _are_texts(payloads)
        read = pc.if_else(pa.array(is_value), payloads, pa.scalar(None, pa.binary()))
        values = _longs(read) if is_long else read.cast(pa.string())
        return DecodedEvents(
            columns={field.name: values} if field.name in self.wanted else {},
            is_event=is_value,
        )


def _are_longs(payloads: pa.Array) -> npt.NDArray[np.bool_]:
    found = pc.equal(pc.binary_length(payloads), _LONG_BYTES)
    return np.asarray(found.fill_null(False))  # noqa: FBT003 - Arrow's own signature


def _are_texts(payloads: pa.Array) -> npt.NDArray[np.bool_]:
    is_value = np.asarray(payloads.is_valid())
    try:
        texts = payloads.cast(pa.string())
        if not pc.any(pc.match_substring(texts, "\0")).as_py():
            return is_value
    except pa.ArrowInvalid:
        pass
    each = (value is not None and _is_text(value) for value in payloads.to_pylist())
    return np.fromiter(each, np.bool_, len(payloads))


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def _longs(payloads: pa.Array) -> pa.Array:
    """Read eight bytes each, the highest first; null stays null."""
    filled = payloads.fill_null(bytes(_LONG_BYTES)).cast(pa.binary(_LONG_BYTES))
    stored = np.frombuffer(filled.buffers()[1] or b"", ">i8")[filled.offset :]
    numbers = stored[: len(filled)].astype(np.int64)
    return pa.array(numbers, mask=np.asarray(payloads.is_null()))
