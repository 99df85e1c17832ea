"""Keys are written as COPY reads them."""

from __future__ import annotations

import struct

import numpy as np

from services.dev.bench.unique_index import encode_keys


def test_each_key_is_a_row_of_one_column() -> None:
    """Sixteen bytes of a hash, behind their number of columns and their length."""
    encoded = encode_keys(np.array([5, 6, 5], dtype=np.int64))

    assert encoded.startswith(b"PGCOPY\n\xff\r\n\0" + bytes(8))
    assert encoded.endswith(b"\xff\xff")
    rows = list(struct.iter_unpack(">hi16s", encoded[19:-2]))
    assert [(1, 16)] * 3 == [(columns, length) for columns, length, _ in rows]
    first, other, again = (key for _, _, key in rows)
    assert first == again
    assert first != other
