"""The merged buckets of a catalog, searched as one.

Each bucket has its own filter, and a horizon has about eight buckets. Until all their
chunks are fetched, an ID is checked against each filter. Fetching also puts the IDs
into one common filter over all buckets. Once every chunk is here, the common filter
comes first: a new ID costs the same however many buckets there are, and only IDs that
pass are checked against each bucket.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tallyweir.sinks.seen_ids.bloom_filter import Asked, BloomFilter, blocks_for
from tallyweir.sinks.seen_ids.ordering import I64Array, U64Array
from tallyweir.sinks.seen_ids.segment import Hits
from tallyweir.sinks.seen_ids.stored_chunks import LazyChunks, StoredChunks

#: The buckets' own filters check the IDs that pass, so this filter may be small.
_FALSE_POSITIVES = 0.01
_NOTHING = Hits(
    rows=np.empty(0, dtype=np.int64),
    payload_hashes=np.empty(0, dtype=np.uint64),
    buckets=np.empty(0, dtype=np.int64),
    looked_up=0,
)


class _CommonFilter:
    """A filter that several threads fill, and that is used once it is complete."""

    def __init__(self, ids: int) -> None:
        self.bloom = BloomFilter.of_nothing(blocks=blocks_for(ids, _FALSE_POSITIVES))
        self._adding = threading.Lock()

    def add(self, hi: U64Array, lo: U64Array) -> None:
        # If two threads set bits at the same time, a bit and so an ID could be lost.
        with self._adding:
            self.bloom.add(hi, lo)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkGroup:
    """Chunks of some buckets; buckets that have expired since are left out.

    Attributes:
        chunks: Chunks of the live buckets, the oldest first.
        common: Filter over all IDs that were fetched.
    """

    chunks: tuple[LazyChunks, ...]
    common: _CommonFilter

    @classmethod
    def over(cls, stored: Sequence[StoredChunks], directory: Path) -> ChunkGroup:
        """Make a group whose chunks are not fetched yet.

        Args:
            stored: The chunks found in Postgres, one object for each bucket.
            directory: On a local disk, for fetched chunks.
        """
        common = _CommonFilter(sum(int(one.ids.sum()) for one in stored))
        oldest_first = sorted(stored, key=lambda one: one.bucket)
        return cls(
            chunks=tuple(
                LazyChunks(one, directory, on_fetched=common.add)
                for one in oldest_first
            ),
            common=common,
        )

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def from_bucket(self, live_from_bucket: int) -> ChunkGroup:
        """Return the group without the buckets that have expired."""
        live = (one for one in self.chunks if one.bucket >= live_from_bucket)
        return replace(self, chunks=tuple(live))

    def look_up(self, asked: Asked) -> Hits:
        """Return the rows of the question that were found, and their entries.

        Raises:
            TallyweirError: The chunks could not be read; or ``SEEN_IDS_GONE``.
        """
        rows: I64Array = np.arange(len(asked))
        if all(one.is_fetched for one in self.chunks):
            rows = self.common.bloom.find_possible(asked)
            asked = asked.take(rows)
        found = [_NOTHING]
        for chunks in reversed(self.chunks):
            hits = chunks.look_up(asked)
            found.append(replace(hits, rows=rows[hits.rows]))
            # If an ID is in several buckets, the entry in the latest one counts, so
            # the earlier buckets need not be searched for it.
            is_left = np.ones(len(asked), dtype=np.bool_)
            is_left[hits.rows] = False
            left = np.flatnonzero(is_left)
            rows, asked = rows[left], asked.take(left)
        return Hits(
            rows=np.concatenate([hits.rows for hits in found]),
            payload_hashes=np.concatenate([hits.payload_hashes for hits in found]),
            buckets=np.concatenate([hits.buckets for hits in found]),
            looked_up=sum(hits.looked_up for hits in found),
        )
