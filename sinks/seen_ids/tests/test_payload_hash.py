"""Payload hashes equal their definition, and differ where payloads do."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.seen_ids.event_hashes import LONG_PAYLOAD_BYTES, payload_hashes

KEY = bytes(range(16))
_TAG_BYTES, _TAG_LONG = 2, 0x80
_LONG = st.integers(LONG_PAYLOAD_BYTES - 9, LONG_PAYLOAD_BYTES + 9).map(b"y".__mul__)
_PAYLOADS = st.lists(st.binary(max_size=90) | _LONG, max_size=40)


def _hash_of(payload: bytes, key: bytes) -> int:
    """Hash one payload as the module documents it, in Python's own integers."""
    header = _TAG_BYTES | len(payload) << 8
    if len(payload) > LONG_PAYLOAD_BYTES:
        header |= _TAG_LONG
        payload = hashlib.blake2b(payload, digest_size=32, key=key).digest()
    read = header.to_bytes(8, "little") + payload + bytes(-len(payload) % 8)
    lanes = [1, *(int.from_bytes(read[n : n + 4], "little") for n in _every(read, 4))]
    stream = hashlib.shake_256(b"tallyweir payload hash" + key).digest(16 * len(lanes))
    secrets = [int.from_bytes(stream[n : n + 8], "little") for n in _every(stream, 8)]
    sums = (sum(map(int.__mul__, lanes, secrets[at::2])) for at in range(2))
    upper, lower = ((total % 2**64) >> 32 for total in sums)
    return max(upper << 32 | lower, 1)


def _every(content: bytes, step: int) -> range:
    return range(0, len(content), step)


def _hashes(payloads: list[bytes], key: bytes = KEY) -> list[int]:
    hashes: list[int] = payload_hashes(pa.array(payloads, pa.binary()), key).tolist()
    return hashes


@given(payloads=_PAYLOADS, key=st.binary(min_size=16, max_size=16))
def test_every_payload_hash_equals_the_scalar_reference(
    payloads: list[bytes], key: bytes
) -> None:
    """Neighbours, their lengths and the place in a block never change a hash."""
    assert _hashes(payloads, key) == [_hash_of(value, key) for value in payloads]


def test_blocks_join_without_a_seam() -> None:
    """A batch of many blocks, most of them of one length, is hashed in its order."""
    draw = random.Random(3)
    payloads = [draw.randbytes(81) for _ in range(20_000)]
    payloads[9_000] = payloads[0]
    # Of other widths than their neighbours, so that these are hashed by themselves.
    others = {12_000: 5_000, 12_001: 2_000, 12_002: 1, 19_998: 300}
    for at, size in others.items():
        payloads[at] = draw.randbytes(size)
    hashes = _hashes(payloads)
    for at in (0, *draw.sample(range(20_000), 50), *others, 19_999):
        assert hashes[at] == _hash_of(payloads[at], KEY)
    assert hashes[9_000] == hashes[0]
    assert len(set(hashes)) == len(payloads) - 1


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_a_slice_reads_its_own_rows(kind: pa.DataType) -> None:
    """A slice has the hashes of its rows, and not of what lies before it."""
    payloads = [b"first", b"second" * 9, b"", b"x" * 3_000, b"last"]
    for first in range(len(payloads)):
        rows = pa.array(payloads, kind).slice(first)
        assert payload_hashes(rows, KEY).tolist() == _hashes(payloads)[first:]


def test_every_bit_of_a_payload_counts() -> None:
    """No two of a payload, its copies with one bit flipped, and its ends are alike."""
    payload = random.Random(4).randbytes(100)
    number = int.from_bytes(payload, "little")
    alike = [(number ^ 1 << bit).to_bytes(100, "little") for bit in range(800)]
    alike += [payload, payload[:-1], payload + b"\0", payload + bytes(8), b"", b"\0"]
    halves = payload_hashes(pa.array(alike), KEY).view(np.uint32).reshape(-1, 2)
    assert len(set(halves[:, 0].tolist())) == len(alike)
    assert len(set(halves[:, 1].tolist())) == len(alike)


def test_a_long_payload_differs_from_its_own_digest() -> None:
    """Replacing it by its digest must not make another payload its equal."""
    payload = b"z" * (LONG_PAYLOAD_BYTES + 1)
    digest = hashlib.blake2b(payload, digest_size=32, key=KEY).digest()
    assert len(set(_hashes([payload, digest]))) == 2


def test_another_key_gives_other_hashes() -> None:
    """Every bit of the key counts, in both halves of a hash."""
    ours = _hashes([b"a"])[0]
    for bit in range(128):
        other = (int.from_bytes(KEY, "little") ^ 1 << bit).to_bytes(16, "little")
        (theirs,) = _hashes([b"a"], other)
        assert ours >> 32 != theirs >> 32
        assert ours % 2**32 != theirs % 2**32


def test_no_hash_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero says that no hash was kept, also where the sums happen to be zero."""
    zeros = np.zeros((600, 2), dtype=np.uint64)
    monkeypatch.setattr(
        "tallyweir.sinks.seen_ids.event_hashes._lane_secrets", lambda _: zeros
    )
    assert _hashes([b"a", b""]) == [1, 1]
