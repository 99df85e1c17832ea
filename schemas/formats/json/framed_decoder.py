"""Decode a whole batch of framed documents to columns, as strictly as a single one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tallyweir.schemas.formats.avro.column_decoder import open_payloads, with_nulls
from tallyweir.schemas.formats.avro.column_texts import gather_bytes, make_spans
from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.formats.framing import HEADER_BYTES, MAGIC
from tallyweir.schemas.formats.json.json_decoder import JsonDecoder


class FramedDecoder(JsonDecoder):
    """Decodes the documents behind the headers; see ``FramedJson``."""

    def decode(self, payloads: pa.Array) -> DecodedEvents:
        """Decode a batch of framed documents; see ``EventDecoder.decode``."""
        if len(payloads):
            payloads = _bodies(payloads)
        return JsonDecoder.decode(self, payloads)


def _bodies(payloads: pa.Array) -> pa.Array:
    """Return what is behind each header; no bytes, so no document, without one."""
    headers, content, starts, ends = open_payloads(payloads)
    # The payload's first byte is the number's lowest.
    is_framed = (headers >= 0) & (headers & 0xFF == MAGIC)
    begins = np.where(is_framed, starts + HEADER_BYTES, starts)
    stops = np.where(is_framed, ends, starts)
    bodies = gather_bytes(content, make_spans(content, begins, stops))
    if not payloads.null_count:
        return bodies
    # A null may be a tombstone, which an envelope knows.
    return with_nulls(bodies, np.asarray(payloads.is_valid()))
