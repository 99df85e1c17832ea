"""Decode payloads to columns one document at a time: slow, and right by construction.

The decoder of whole batches uses it for the rows that it cannot prove to be good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.debezium_envelope import SkippedRecordError
from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.formats.json.json_codec import JsonCodec, JsonEvent

#: The most names of unnamed fields that a batch reports.
UNNAMED_MAX = 64


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Decodes by the codec of one contract.

    Attributes:
        codec: The codec.
        types: The types of the wanted columns.
    """

    codec: JsonCodec
    types: Mapping[str, pa.DataType]

    def decode(self, payloads: Iterable[bytes | None]) -> DecodedEvents:
        """Decode payloads; see ``EventDecoder.decode``."""
        events: list[JsonEvent | None] = []
        skipped: dict[int, str] = {}
        unnamed: Counter[str] = Counter()
        for payload in payloads:
            try:
                event = self.codec.read(payload)
            except DecodeError as exc:
                if isinstance(exc, SkippedRecordError):
                    skipped[len(events)] = exc.what
                events.append(None)
                continue
            events.append(event)
            unnamed.update(set(event.unnamed))
        columns = {
            name: pa.array([one and one.record[name] for one in events], kind)
            for name, kind in self.types.items()
        }
        return DecodedEvents(
            columns=columns,
            is_event=np.array([one is not None for one in events], dtype=np.bool_),
            canonical=pa.array([one and one.canonical for one in events], pa.binary()),
            unnamed=bounded(unnamed),
            skipped=skipped,
        )


def bounded(counts: Mapping[str, int]) -> dict[str, int]:
    """Keep the names with the highest counts."""
    return dict(Counter(counts).most_common(UNNAMED_MAX))
