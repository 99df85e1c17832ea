"""Chunks of a merged bucket: how entries are stored, and the merge that makes them.

Each entry has the batch that made it. A chunk is stored like a run, with a third
``bytea`` column, ``sequences``: for each entry 4 big-endian bytes, the batch counted
from the oldest of the bucket's chunks. So a merge keeps all that the runs said, and
merged entries can be shown as they were after any batch. An ID that was corrected has
an entry for each time, the oldest first.

A merge takes bounded memory. It cuts the range of fingerprints into equal parts; their
number is a power of two. The entries of each part are a chunk, so chunks do not
overlap. Fingerprints are keyed hashes and spread evenly, so chunks are about equal. All
entries of an ID are in one chunk.

A Bloom filter over the bucket's IDs is cut at the same places, since fingerprints
choose its blocks in proportion: each chunk carries the share of its own range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallyweir.sinks.seen_ids.bloom_filter import (
    Asked,
    BloomFilter,
    blocks_for,
    rate_of_one,
)
from tallyweir.sinks.seen_ids.claim import NO_HASH
from tallyweir.sinks.seen_ids.id_hash import FINGERPRINT_BYTES, from_bytes, to_bytes
from tallyweir.sinks.seen_ids.ordering import (
    HALF_WORD,
    WORD_BITS,
    BoolArray,
    I64Array,
    U64Array,
    fingerprint_order,
    last_of_each,
)
from tallyweir.sinks.seen_ids.run import PAYLOAD_HASH_BYTES, damaged
from tallyweir.sinks.seen_ids.word_table import WordTable

SEQUENCE_BYTES = 4
_HASH_TYPE = np.dtype(">u8")
_SEQUENCE_TYPE = np.dtype(">u4")

Stored = bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """Entries of one bucket, sorted by fingerprint, then by batch.

    Attributes:
        hi: First words of the fingerprints.
        lo: Second words.
        payload_hashes: ``NO_HASH`` if no hash was kept.
        sequences: The batch that made each entry.
    """

    hi: U64Array
    lo: U64Array
    payload_hashes: U64Array
    sequences: I64Array

    def __len__(self) -> int:
        return len(self.hi)

    def take(self, rows: I64Array | BoolArray | slice) -> Entries:
        """Return some of the entries."""
        return Entries(
            hi=self.hi[rows],
            lo=self.lo[rows],
            payload_hashes=self.payload_hashes[rows],
            sequences=self.sequences[rows],
        )

    def sorted(self) -> Entries:
        """Return the entries in order, whatever their order was."""
        return self.take(fingerprint_order(self.hi, self.lo, self.sequences))

    def newest(self) -> Entries:
        """Return the last entry of each ID, which is the one that counts."""
        last = last_of_each(self.hi, self.lo)
        # Few IDs are ever corrected, so most columns need not be copied.
        return self if last.all() else self.take(last)

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """Return the entries of several, one after the other."""
        return cls(
            hi=np.concatenate([part.hi for part in parts]),
            lo=np.concatenate([part.lo for part in parts]),
            payload_hashes=np.concatenate([part.payload_hashes for part in parts]),
            sequences=np.concatenate([part.sequences for part in parts]),
        )

    def encode(self, *, oldest: int) -> tuple[bytes, bytes | None, bytes]:
        """Return ``fingerprints``, ``payload_hashes`` and ``sequences`` of a row."""
        hashes = self.payload_hashes
        kept = bool((hashes != NO_HASH).any())
        return (
            to_bytes(np.column_stack([self.hi, self.lo])),
            hashes.astype(_HASH_TYPE).tobytes() if kept else None,
            (self.sequences - oldest).astype(_SEQUENCE_TYPE).tobytes(),
        )

    @classmethod
    def decode(
        cls,
        *,
        bucket: int,
        oldest: int,
        fingerprints: Stored,
        payload_hashes: Stored | None,
        sequences: Stored | None,
    ) -> Entries:
        """Read a row of the catalog.

        Args:
            bucket: The bucket to name in an error.
            oldest: The batch that ``sequences`` are counted from.
            fingerprints: As stored.
            payload_hashes: As stored.
            sequences: As stored; None for a run, whose entries are all of ``oldest``.

        Raises:
            FatalError: ``SEEN_IDS_RUN_DAMAGED``: the row differs from any row that
                ``encode`` could have written.
        """
        if len(fingerprints) == 0 or len(fingerprints) % FINGERPRINT_BYTES:
            raise damaged(bucket, f"{len(fingerprints)} bytes of fingerprints")
        hi, lo = from_bytes(fingerprints).T
        # Equal first words are rare, and only they need their second ones compared.
        at = np.flatnonzero(hi[1:] <= hi[:-1])
        if ((hi[at] != hi[at + 1]) | (lo[at] > lo[at + 1])).any():
            raise damaged(bucket, "fingerprints out of order")
        hashes = np.full(len(hi), NO_HASH, dtype=np.uint64)
        if payload_hashes is not None:
            _check_length(bucket, "hashes", payload_hashes, PAYLOAD_HASH_BYTES, len(hi))
            hashes = np.frombuffer(payload_hashes, dtype=_HASH_TYPE).astype(np.uint64)
        batches = np.full(len(hi), oldest, dtype=np.int64)
        if sequences is not None:
            _check_length(bucket, "sequences", sequences, SEQUENCE_BYTES, len(hi))
            batches += np.frombuffer(sequences, dtype=_SEQUENCE_TYPE)
        return cls(hi=hi, lo=lo, payload_hashes=hashes, sequences=batches)


def _check_length(bucket: int, what: str, stored: Stored, each: int, ids: int) -> None:
    if len(stored) != each * ids:
        raise damaged(bucket, f"{len(stored)} bytes of {what} for {ids} IDs")


#: A chunk has between half of this number and this number of IDs. A look-up reads a
#: slice of one chunk.
CHUNK_IDS = 1 << 14
#: Entries that are held in memory before they are sorted and put into a file.
_SPILLED_ENTRIES = 1 << 18
_COLUMNS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """The entries of one part of the range of fingerprints, never empty.

    Attributes:
        number: Number of the part.
        entries: Sorted by fingerprint, then by batch.
        filter: The part's share of the filter over all chunks.
    """

    number: int
    entries: Entries
    filter: bytes


class BucketMerge:
    """Takes the entries of one bucket in any order, and gives them back as chunks.

    Args:
        directory: On a local disk; takes 32 bytes per entry, in files without a name.
        false_positives: Rate of the catalog that the bucket belongs to.
    """

    def __init__(self, directory: Path, *, false_positives: float) -> None:
        self._directory = directory
        self._false_positives = false_positives
        self._pending: list[Entries] = []
        self._pending_entries = 0
        self._sorted: list[Entries] = []
        self._entries = 0

    def __len__(self) -> int:
        return self._entries

    @property
    def count(self) -> int:
        """Number of parts that the range of fingerprints is cut into."""
        return 1 << ((max(self._entries, 1) - 1) // CHUNK_IDS).bit_length()

    def add(self, entries: Entries) -> None:
        """Add some entries.

        Raises:
            OSError: There is no room on the disk.
        """
        self._pending.append(entries)
        self._pending_entries += len(entries)
        self._entries += len(entries)
        if self._pending_entries >= _SPILLED_ENTRIES:
            self._spill()

    def chunks(self) -> Iterator[Chunk]:
        """Yield all entries, chunk by chunk, in order.

        Raises:
            OSError: There is no room on the disk.
        """
        self._spill()
        count = self.count
        rate = rate_of_one(self._false_positives)
        blocks = -(-blocks_for(self._entries, rate) // count)
        begins = [0] * len(self._sorted)
        for number in range(count):
            after = first_word(number + 1, count)
            ends = [
                len(one) if after is None else int(np.searchsorted(one.hi, after))
                for one in self._sorted
            ]
            parts = [
                one.take(slice(begin, end))
                for one, begin, end in zip(self._sorted, begins, ends, strict=True)
                if begin < end
            ]
            begins = ends
            if parts:
                entries = Entries.joined(parts).sorted()
                yield Chunk(
                    number=number,
                    entries=entries,
                    filter=_share(entries, count, blocks).encode(),
                )

    def _spill(self) -> None:
        if not self._pending:
            return
        entries = Entries.joined(self._pending).sorted()
        self._pending, self._pending_entries = [], 0
        table = WordTable(self._directory, columns=_COLUMNS, rows=len(entries))
        sequences = entries.sequences.view(np.uint64)
        table.append((entries.hi, entries.lo, entries.payload_hashes, sequences))
        hi, lo, payload_hashes, sequences = table.map()
        self._sorted.append(
            Entries(
                hi=hi,
                lo=lo,
                payload_hashes=payload_hashes,
                sequences=sequences.view(np.int64),
            )
        )


def first_word(number: int, count: int) -> np.uint64 | None:
    """Return the first word of a part of the range; None after the last part."""
    assert count & (count - 1) == 0
    if number == count:
        return None
    return np.uint64(number * ((1 << WORD_BITS) // count))


def stretched(hi: U64Array, count: int) -> U64Array:
    """Stretch words from their parts of the range to the whole range."""
    return hi << np.uint64(count.bit_length() - 1)


def share_passes(share: bytes, hi: U64Array, lo: U64Array, *, count: int) -> bool:
    """Tell whether the share of a chunk lets all IDs of the chunk pass."""
    bloom = BloomFilter.joined({0: share}, count=1)
    asked = Asked(_words_of_share(hi, count), lo)
    return len(bloom.find_possible(asked)) == len(hi)


def _share(entries: Entries, count: int, blocks: int) -> BloomFilter:
    hi = _words_of_share(entries.hi, count)
    return BloomFilter.over(hi, entries.lo, blocks=blocks)


def _words_of_share(hi: U64Array, count: int) -> U64Array:
    # The first half of a word chooses the block, so the second must not move up.
    return stretched((hi >> HALF_WORD) << HALF_WORD, count)
