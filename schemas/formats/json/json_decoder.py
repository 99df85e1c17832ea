"""Decode a whole batch of documents to columns, as strictly as a single one.

The rows of a batch are decoded together, as far as they can be proven to be events that
are written in a usual way. All other rows are read one at a time. Both give the same
columns and the same canonical form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tallyweir.schemas.formats.decoded_columns import DecodedEvents, column_types
from tallyweir.schemas.formats.json.json_codec import compile_codec
from tallyweir.schemas.formats.json.json_columns import decode_slice
from tallyweir.schemas.formats.json.json_rows import RowDecoder, bounded
from tallyweir.schemas.formats.json.json_scan import I64Array, Scan

if TYPE_CHECKING:
    from tallyweir.schemas.event_contracts import EventContracts

#: The most rows and bytes of a slice: its arrays stay in the cache. Spark's Arrow
#: batches of 10,000 rows are one.
SLICE_ROWS = 10_240
SLICE_BYTES = 1 << 24
#: Fewer rows are read one at a time.
FEW_ROWS = 16


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
        self._types = column_types(contracts, self._wanted)
        self._codec = compile_codec(contract.text)
        self._rows = RowDecoder(self._codec, self._types)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._contracts, self._wanted)

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch of documents; see ``EventDecoder.decode``."""
        parts = [
            self._decode_slice(payloads.slice(first, last - first))
            for first, last in _slices(_offsets(payloads))
        ]
        if len(parts) == 1:
            return parts[0]
        unnamed: Counter[str] = Counter()
        skipped: dict[int, str] = {}
        rows = 0
        for part in parts:
            unnamed.update(part.unnamed)
            skipped |= {rows + row: what for row, what in part.skipped.items()}
            rows += part.is_event.size
        return DecodedEvents(
            columns={
                name: pa.concat_arrays(
                    [pa.nulls(0, kind), *(part.columns[name] for part in parts)]
                )
                for name, kind in self._types.items()
            },
            is_event=np.concatenate(
                [np.zeros(0, np.bool_), *(part.is_event for part in parts)]
            ),
            canonical=pa.concat_arrays(
                [pa.nulls(0, pa.binary()), *(part.canonical for part in parts)]
            ),
            unnamed=bounded(unnamed),
            skipped=skipped,
        )

    def _decode_slice(self, payloads: pa.Array) -> DecodedEvents:
        rows = len(payloads)
        offsets = _offsets(payloads)
        is_alone = rows < FEW_ROWS or bool(self._codec.envelope)
        if is_alone or offsets[-1] - offsets[0] > SLICE_BYTES:
            return self._rows.decode(payloads.to_pylist())
        raw = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)
        scan = Scan(
            raw[offsets[0] : offsets[-1]],
            offsets[:-1] - offsets[0],
            offsets[1:] - offsets[0],
        )
        if payloads.null_count:
            scan.is_doubtful |= np.asarray(payloads.is_null())
        proven = decode_slice(scan, self._codec, self._types)
        if proven.rows.size == rows:
            return proven.events
        others = np.ones(rows, np.bool_)
        others[proven.rows] = False
        left = np.flatnonzero(others)
        alone = self._rows.decode(payloads.take(pa.array(left)).to_pylist())
        return _merge(rows, proven.rows, proven.events, left, alone)


def _merge(
    rows: int,
    first: I64Array,
    one: DecodedEvents,
    second: I64Array,
    other: DecodedEvents,
) -> DecodedEvents:
    """Put the rows of two parts back in their order."""
    places = np.empty(rows, np.int64)
    places[first] = np.arange(first.size)
    places[second] = np.arange(first.size, rows)
    order = pa.array(places)
    is_event = np.concatenate([one.is_event, other.is_event])[places]
    columns = {
        name: pa.concat_arrays([column, other.columns[name]]).take(order)
        for name, column in one.columns.items()
    }
    canonical = pa.concat_arrays([one.canonical, other.canonical]).take(order)
    return DecodedEvents(
        columns=columns,
        is_event=is_event,
        canonical=canonical,
        unnamed=bounded(Counter(one.unnamed) + Counter(other.unnamed)),
    )


def _offsets(payloads: pa.Array) -> I64Array:
    """Return where each payload begins in the buffer, and where the last one ends."""
    is_large = pa.types.is_large_binary(payloads.type)
    if not len(payloads):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(payloads.buffers()[1], np.int64 if is_large else np.int32)
    first = payloads.offset
    found: I64Array = offsets[first : first + len(payloads) + 1].astype(np.int64)
    return found


def _slices(offsets: I64Array) -> Iterator[tuple[int, int]]:
    """Cut the rows into slices; only a slice of one row may be too long."""
    first, rows = 0, offsets.size - 1
    while first < rows:
        within = int(offsets.searchsorted(offsets[first] + SLICE_BYTES, "right")) - 1
        last = max(first + 1, min(within, first + SLICE_ROWS, rows))
        yield first, last
        first = last
