"""Fingerprints equal SipHash over a documented encoding, row by row."""

from __future__ import annotations

import hashlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.seen_ids import id_hash
from tallyweir.sinks.seen_ids.event_hashes import fingerprint
from tallyweir.sinks.seen_ids.id_hash import BLOCK_ROWS, from_bytes, to_bytes
from tallyweir.sinks.seen_ids.ordering import U64Array
from tallyweir.sinks.seen_ids.tests.siphash import fingerprint_of, siphash

KEY = bytes(range(16))
_TEXT = st.text(max_size=30) | st.integers(505, 520).map("x".__mul__)
_ROWS = st.lists(
    st.tuples(
        _TEXT,
        st.binary(max_size=20),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=40,
)


def _pairs(fingerprints: U64Array) -> list[tuple[int, int]]:
    return [(int(hi), int(lo)) for hi, lo in fingerprints]


@pytest.mark.parametrize(
    ("size", "first", "digest"),
    [
        (
            8,
            "310e0edd47db6f72",
            "0226a91002af9775a791b3ec5a48e643f8848d2d5774dea9be3438d5786bb58e",
        ),
        (
            16,
            "a3817f04ba25a8e66df67214c7550293",
            "ecfaa9fe47ff788fa834a9863ea2715a2880cd37d2b8c3c194402838428119b9",
        ),
    ],
)
def test_the_scalar_reference_is_siphash(size: int, first: str, digest: str) -> None:
    """The 64 official vectors (messages 00, 00 01, ...), as one SHA-256 digest."""
    outputs = [siphash(KEY, bytes(range(n)), size=size) for n in range(64)]
    assert outputs[0].hex() == first
    assert hashlib.sha256(b"".join(outputs)).hexdigest() == digest


@given(rows=_ROWS, key=st.binary(min_size=16, max_size=16))
def test_every_row_equals_the_scalar_reference(
    rows: list[tuple[str, bytes, int, int]], key: bytes
) -> None:
    """Blocks, mixed lengths and several parts never change a fingerprint."""
    texts, blobs, shorts, longs = ([row[at] for row in rows] for at in range(4))
    columns = [
        pa.array(texts, pa.string()),
        pa.array(blobs, pa.binary()),
        pa.array(shorts, pa.int32()),
        pa.array(longs, pa.int64()),
    ]
    expected = [fingerprint_of(row, key) for row in rows]
    assert _pairs(fingerprint(columns, key)) == expected


@given(rows=_ROWS)
def test_one_id_has_the_fingerprint_of_its_row(
    rows: list[tuple[str, bytes, int, int]],
) -> None:
    """Who asks what became of an ID needs no Arrow, and finds what was filed."""
    texts = pa.array([text for text, _, _, _ in rows], pa.string())
    numbers = pa.array([number for _, _, _, number in rows], pa.int64())
    whole = fingerprint([texts, numbers], KEY)
    for row, (text, _, _, number) in zip(whole, rows, strict=True):
        assert id_hash.fingerprint_of((text, number), KEY) == to_bytes(row)


def test_an_unsigned_number_is_filed_under_its_digits() -> None:
    """Whoever asks for it writes these digits."""
    texts = ["18446744073709551615", "0", "9223372036854775808"]
    numbers = pa.array([Decimal(one) for one in ["1", *texts]], pa.decimal128(20, 0))
    assert _pairs(fingerprint([numbers.slice(1)], KEY)) == _pairs(
        fingerprint([pa.array(texts)], KEY)
    )


def test_blocks_join_without_a_seam() -> None:
    """A batch of more rows than one block has the same fingerprints, in its order."""
    rows = 2 * BLOCK_ROWS + 3
    ids = [f"flight-{n}" for n in range(rows)]
    whole = fingerprint([pa.array(ids)], KEY)
    for at in (0, BLOCK_ROWS - 1, BLOCK_ROWS, rows - 1):
        assert _pairs(whole[at : at + 1]) == [fingerprint_of((ids[at],), KEY)]
    assert len(np.unique(whole[:, 0])) == rows


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "bc", "d" * 9, "e" * 600, ""]),
        pa.array(["a", None, "bc", "d" * 9, "e" * 600, ""], pa.large_string()),
        pa.array([b"a", None, b"bc", b"d" * 9, b"e" * 600, b""]),
        pa.array(
            [b"12345", None, b"abcde", b"-----", b"67890", b"fghij"], pa.binary(5)
        ),
        pa.array([1, None, -3, 2**31 - 1, -(2**31), 0], pa.int32()),
        pa.array([1, None, -3, 2**63 - 1, -(2**63), 0], pa.int64()),
    ],
    ids=lambda column: str(column.type),
)
def test_a_slice_reads_its_own_rows(column: pa.Array) -> None:
    """A slice past a null row has the fingerprints of its rows, not of the parent's."""
    rows = column.slice(2)
    expected = [fingerprint_of((value,), KEY) for value in rows.to_pylist()]
    assert _pairs(fingerprint([rows], KEY)) == expected


def test_a_null_row_is_refused() -> None:
    """A missing ID is the caller's decision, never a fingerprint."""
    with pytest.raises(AssertionError, match="without an ID"):
        fingerprint([pa.array(["a", None])], KEY)


def test_a_type_that_no_id_can_have_is_refused() -> None:
    """Floating-point numbers have several encodings of one value."""
    with pytest.raises(TypeError, match="double"):
        fingerprint([pa.array([1.0])], KEY)


def test_parts_cannot_be_shifted_into_each_other() -> None:
    """The encoding is injective over types, lengths and the number of parts."""
    ids: list[list[pa.Array]] = [
        [pa.array(["ab"]), pa.array(["c"])],
        [pa.array(["a"]), pa.array(["bc"])],
        [pa.array(["abc"])],
        [pa.array(["abc"]), pa.array([""])],
        [pa.array(["abc\0"])],
        [pa.array([b"abc"])],
        [pa.array([5])],
        [pa.array(["5"])],
        [pa.array([(5).to_bytes(8, "little")])],
    ]
    found = {_pairs(fingerprint(columns, KEY))[0] for columns in ids}
    assert len(found) == len(ids)


def test_the_width_of_a_container_does_not_count() -> None:
    """Widening a field must not make the catalog forget its IDs."""
    assert _pairs(fingerprint([pa.array([7], pa.int32())], KEY)) == _pairs(
        fingerprint([pa.array([7], pa.int64())], KEY)
    )
    assert _pairs(fingerprint([pa.array(["x"], pa.string())], KEY)) == _pairs(
        fingerprint([pa.array(["x"], pa.large_string())], KEY)
    )


def test_a_long_part_differs_from_its_own_digest() -> None:
    """Replacing a long part by its digest must not open a way to a collision."""
    value = b"z" * 513
    digest = hashlib.blake2b(value, digest_size=32, key=KEY).digest()
    both = fingerprint([pa.array([value, digest])], KEY)
    assert _pairs(both)[0] != _pairs(both)[1]


def test_another_key_gives_other_fingerprints() -> None:
    """Every bit of the key counts, in both halves."""
    column = [pa.array(["a"])]
    for at in range(16):
        other = bytearray(KEY)
        other[at] ^= 1
        assert (fingerprint(column, KEY) != fingerprint(column, bytes(other))).all()


@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=20
    )
)
def test_stored_bytes_sort_as_the_pairs_do(pairs: list[tuple[int, int]]) -> None:
    """Sixteen bytes of the catalog compare as the numbers that they hold."""
    stored = to_bytes(np.array(pairs, dtype=np.uint64).reshape(-1, 2))
    rows = [stored[at : at + 16] for at in range(0, len(stored), 16)]
    assert _pairs(from_bytes(b"".join(sorted(rows)))) == sorted(pairs)


def test_stored_bytes_of_a_broken_length_are_refused() -> None:
    """Half a fingerprint is damage, not data."""
    with pytest.raises(ValueError, match="reshape"):
        from_bytes(bytes(24))
