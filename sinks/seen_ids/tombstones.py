"""What was erased and must not come back: keyed fingerprints of IDs, and positions.

The tasks of a claim compare every event with them. Without tombstones that costs
nothing; with thousands, it costs one look-up in a table of flags for each event.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.seen_ids.id_hash import from_bytes
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array, U64Array, find_pairs

#: 64 KiB of slots; ten thousand IDs take a seventh of them.
_SLOT_BITS = 16
_SLOT_SHIFT = np.uint64(64 - _SLOT_BITS)


class Tombstones:
    """The tombstones of one pipeline, for as long as one claim lasts.

    Args:
        fingerprints: 16 bytes each, sorted and without repeats.
        positions: Positions of erased records, in any order.
    """

    def __init__(
        self, fingerprints: bytes, positions: Iterable[tuple[str, int, int]]
    ) -> None:
        pairs = from_bytes(fingerprints)
        self._hi = np.ascontiguousarray(pairs[:, 0])
        self._lo = np.ascontiguousarray(pairs[:, 1])
        self._slots = np.zeros(1 << _SLOT_BITS, dtype=np.bool_)
        self._slots[_slots_of(self._hi)] = True
        offsets: dict[TopicPartition, list[int]] = {}
        for topic, partition, offset in positions:
            offsets.setdefault(TopicPartition(topic, partition), []).append(offset)
        self._offsets = {
            place: np.array(sorted(erased), dtype=np.int64)
            for place, erased in offsets.items()
        }

    def __bool__(self) -> bool:
        return self.has_ids or bool(self._offsets)

    @property
    def has_ids(self) -> bool:
        """Whether an ID was erased, and not only positions."""
        return bool(self._hi.size)

    def find_ids(self, fingerprints: U64Array) -> I64Array:
        """Return which rows of fingerprints, pairs ``(hi, lo)``, were erased."""
        hi = fingerprints[:, 0]
        maybe = np.flatnonzero(self._slots[_slots_of(hi)])
        found, _ = find_pairs(self._hi, self._lo, hi[maybe], fingerprints[maybe, 1])
        return maybe[found]

    def has_positions(
        self, place: TopicPartition, offsets: npt.NDArray[np.int64]
    ) -> BoolArray:
        """Tell which offsets of a partition were erased."""
        erased = self._offsets.get(place)
        if erased is None:
            return np.zeros(len(offsets), dtype=np.bool_)
        found: BoolArray = erased.take(
            np.searchsorted(erased, offsets), mode="clip"
        ) == (offsets)
        return found


def _slots_of(hi: U64Array) -> I64Array:
    return (hi >> _SLOT_SHIFT).astype(np.int64)
