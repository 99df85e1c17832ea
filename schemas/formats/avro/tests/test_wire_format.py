"""A frame is one magic byte and four bytes of schema id."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.avro.wire_format import frame, split


@given(schema_id=st.integers(1, (1 << 31) - 1), body=st.binary())
def test_split_undoes_frame(schema_id: int, body: bytes) -> None:
    """No byte of id or body is lost."""
    assert split(frame(schema_id, body)) == (schema_id, body)


def test_a_frame_is_confluents() -> None:
    """Other tools read the same bytes."""
    assert frame(258, b"\x02a") == b"\x00\x00\x00\x01\x02\x02a"


def test_a_decode_error_survives_pickling() -> None:
    """It travels from Spark's workers to the driver."""
    with pytest.raises(DecodeError) as caught:
        split(b"{}")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == "BAD_MAGIC: the first byte is 0x7b, expected 0x00"
