"""What is under a tombstone is found, and nothing else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.seen_ids.event_hashes import fingerprint
from tallyweir.sinks.seen_ids.id_hash import fingerprint_of, to_bytes
from tallyweir.sinks.seen_ids.tombstones import Tombstones

_KEY = b"0123456789abcdef"


def _entombed(*ids: str) -> Tombstones:
    return Tombstones(b"".join(sorted(fingerprint_of([i], _KEY) for i in ids)), [])


def test_without_any_there_is_nothing_to_look_for() -> None:
    """Tasks ask this first."""
    assert not Tombstones(b"", [])
    assert Tombstones(b"", [("t", 0, 1)])
    assert not Tombstones(b"", [("t", 0, 1)]).has_ids
    assert _entombed("a").has_ids


def test_an_id_is_found_among_thousands_of_others() -> None:
    """In whichever slot it is, and whoever has the same one."""
    ids = [f"n{number}" for number in range(20_000)]
    rows = fingerprint([pa.array(ids)], _KEY)
    found = _entombed(*ids[::7]).find_ids(rows)
    assert found.tolist() == list(range(0, 20_000, 7))


def test_both_words_of_a_fingerprint_must_be_the_same() -> None:
    """Others may begin alike."""
    pairs = np.array([[7, 1], [7, 3]], dtype=np.uint64)
    asked = np.array([[7, 2], [7, 3], [8, 3]], dtype=np.uint64)
    assert Tombstones(to_bytes(pairs), []).find_ids(asked).tolist() == [1]


def test_an_offset_is_of_its_partition() -> None:
    """Beyond the last one, between two, and of another partition there is nothing."""
    tombstones = Tombstones(b"", [("t", 0, 9), ("t", 0, 4), ("t", 1, 5)])
    offsets = np.arange(3, 12)

    def found(topic: str, partition: int) -> list[int]:
        erased = tombstones.has_positions(TopicPartition(topic, partition), offsets)
        return [int(offset) for offset in offsets[erased]]

    assert found("t", 0) == [4, 9]
    assert found("t", 1) == [5]
    assert found("u", 0) == []
    assert found("t", 2) == []
