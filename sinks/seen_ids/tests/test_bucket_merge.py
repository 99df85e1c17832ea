"""A merge keeps every entry, and puts each where it is looked for."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.seen_ids import chunk
from tallyweir.sinks.seen_ids.bloom_filter import Asked, BloomFilter, blocks_for
from tallyweir.sinks.seen_ids.chunk import BucketMerge, Chunk, Entries, first_word
from tallyweir.sinks.seen_ids.ordering import U64Array

SEED = 20261123

_WORDS = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**32, 2**63, 2**64 - 1])
)
#: Fingerprint, payload hash, batch.
_ENTRY = st.tuples(_WORDS, _WORDS, st.integers(0, 3), st.integers(7, 2**31))
_Rows = list[tuple[int, int, int, int]]


def _entries(rows: _Rows) -> Entries:
    columns = np.array([row[:3] for row in rows], dtype=np.uint64).reshape(-1, 3).T
    sequences = np.array([row[3] for row in rows], dtype=np.int64)
    hi, lo, hashes = columns
    return Entries(hi=hi, lo=lo, payload_hashes=hashes, sequences=sequences)


def _rows(entries: Entries) -> _Rows:
    hashes, sequences = entries.payload_hashes.tolist(), entries.sequences.tolist()
    words = zip(entries.hi.tolist(), entries.lo.tolist(), strict=True)
    return [
        (*pair, payload_hash, sequence)
        for pair, payload_hash, sequence in zip(words, hashes, sequences, strict=True)
    ]


def _merged(parts: list[_Rows], *, rate: float = FALSE_POSITIVES) -> list[Chunk]:
    with tempfile.TemporaryDirectory() as folder:
        merge = BucketMerge(Path(folder), false_positives=rate)
        for part in parts:
            if part:
                merge.add(_entries(part).sorted())
        chunks = list(merge.chunks())
        assert not list(Path(folder).iterdir())
        assert {one.number for one in chunks} <= set(range(merge.count))
        ends = [first_word(n, merge.count) for n in range(merge.count + 1)]
    for one in chunks:
        begin, end = ends[one.number], ends[one.number + 1]
        assert begin is not None
        assert (one.entries.hi >= begin).all()
        assert end is None or (one.entries.hi < end).all()
    return chunks


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(st.lists(_ENTRY, max_size=12), max_size=6),
    chunk_ids=st.sampled_from([1, 2, 5, 1_000]),
    spilled=st.sampled_from([1, 4, 1_000]),
)
def test_chunks_hold_what_was_given_in_order_and_do_not_overlap(
    parts: list[_Rows], chunk_ids: int, spilled: int
) -> None:
    """Of an ID that was corrected every entry is kept, the oldest first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk, "CHUNK_IDS", chunk_ids)
        patch.setattr(chunk, "_SPILLED_ENTRIES", spilled)
        chunks = _merged(parts)
    rows = [row for chunk in chunks for row in _rows(chunk.entries)]
    given_rows = [row for part in parts for row in part]
    assert sorted(rows) == sorted(given_rows)
    assert [(hi, lo, batch) for hi, lo, _, batch in rows] == sorted(
        (hi, lo, batch) for hi, lo, _, batch in given_rows
    )
    assert all(a.number < b.number for a, b in pairwise(chunks))


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(_ENTRY, min_size=1, max_size=40))
def test_what_is_written_is_read_again(rows: _Rows) -> None:
    """With the batches counted from the oldest of the bucket."""
    entries = _entries(rows).sorted()
    fingerprints, hashes, sequences = entries.encode(oldest=7)
    read = Entries.decode(
        bucket=0,
        oldest=7,
        fingerprints=fingerprints,
        payload_hashes=hashes,
        sequences=sequences,
    )
    assert _rows(read) == _rows(entries)


def _random(ids: int, seed: int = SEED) -> tuple[U64Array, U64Array]:
    rng = np.random.default_rng(seed)
    hi, lo = rng.integers(0, 2**64, (2, ids), dtype=np.uint64)
    return np.sort(hi), lo


def _last_words_of_blocks(blocks: int) -> U64Array:
    """Return the largest word of each block, where rounding is seen first."""
    halves = [-(-((block + 1) << 32) // blocks) - 1 for block in range(blocks)]
    return np.array([(half << 32) | 0xFFFFFFFF for half in halves], dtype=np.uint64)


@pytest.mark.parametrize("rate", [0.01, 0.001])
def test_the_shares_of_chunks_are_one_filter_of_an_eighth_of_the_rate(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A horizon has eight buckets; nothing is ruled out, wherever the range is cut."""
    monkeypatch.setattr(chunk, "CHUNK_IDS", 1 << 10)
    hi, lo = _random(49_000)
    blocks = -(-blocks_for(50_000, rate / 8) // 64) * 64
    edges = _last_words_of_blocks(blocks)[:: blocks // 1_000][:1_000]
    hi, lo = np.sort(np.concatenate([hi, edges])), np.concatenate([lo, lo[:1_000]])
    rows = [(*pair, 0, 7) for pair in zip(hi.tolist(), lo.tolist(), strict=True)]
    chunks = _merged([rows], rate=rate)
    assert len(chunks) == 64
    joined = BloomFilter.joined({c.number: c.filter for c in chunks}, count=64)
    assert len(joined.find_possible(Asked(hi, lo))) == 50_000
    new = Asked(*_random(1_000_000, SEED + 1))
    passed = len(joined.find_possible(new)) / 1_000_000
    assert abs(passed - rate / 8) < 0.4 * rate / 8
    whole = BloomFilter.over(hi, lo, blocks=blocks)
    assert whole.encode() == joined.encode()


@pytest.mark.parametrize(
    "damage",
    [
        {"fingerprints": b""},
        {"fingerprints": b"\x00" * 17},
        {"fingerprints": b"\x01" * 16 + b"\x00" * 16},
        {"payload_hashes": b"\x00" * 8},
        {"sequences": b"\x00" * 4},
    ],
)
def test_a_damaged_chunk_is_an_error_and_not_an_id_less(
    damage: dict[str, bytes],
) -> None:
    """IDs that were not found would count twice."""
    stored: dict[str, bytes] = {
        "fingerprints": b"\x00" * 16 + b"\x01" * 16,
        "payload_hashes": b"\x00" * 16,
        "sequences": b"\x00" * 8,
    } | damage
    with pytest.raises(FatalError) as raised:
        Entries.decode(
            bucket=3600,
            oldest=0,
            fingerprints=stored["fingerprints"],
            payload_hashes=stored["payload_hashes"],
            sequences=stored["sequences"],
        )
    assert raised.value.code == "SEEN_IDS_RUN_DAMAGED"
