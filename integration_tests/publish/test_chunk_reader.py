"""Looking IDs up in chunks on a real server, as the catalog in memory has it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from integration_tests.harness.filed_ids import HOUR, LAYOUT, FiledIds
from tallyweir.sinks.postgres.catalog import catalog_merge
from tallyweir.sinks.postgres.catalog.catalog_reader import PostgresRunSource
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.seen_ids import chunk
from tallyweir.sinks.seen_ids.chunk import Entries
from tallyweir.sinks.seen_ids.stored_chunks import Slices, StoredChunks
from tallyweir.sinks.seen_ids.tests.catalog import MemoryCatalog, Pair, run_of


def test_a_slice_is_returned_if_it_may_have_the_id_and_no_other(
    home_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server decides as the catalog in memory does, that the other tests use."""
    monkeypatch.setattr(catalog_merge, "_MARGIN_BATCHES", 0)
    monkeypatch.setattr(chunk, "CHUNK_IDS", 64)
    world = FiledIds(dsn=home_dsn, directory=tmp_path)
    world.publish(0, ids=200)
    world.publish(HOUR)
    assert [0] == world.merge()
    with connect(home_dsn, application_name="test") as connection:
        source = PostgresRunSource(connection, LAYOUT.pipeline)
        ((_, stored), *_) = source.fetch_runs(
            after_sequence=-1, through_sequence=1, live_from_bucket=0
        )
        assert isinstance(stored, StoredChunks)
        reader = stored.reader
        catalog = MemoryCatalog()
        catalog.append(1, [run_of(world.filed[0][2], payload_hash=1)])
        catalog.merge(0, 1)
        seed = random.SystemRandom().randrange(2**32)
        print(f"seed={seed}")  # noqa: T201 - a failure must tell it
        asked = _slices_of_all_kinds(random.Random(seed), stored, world.filed[0][2])
        expected = catalog.find_in_slices(0, 1, asked)
        found = reader.find_in_slices(0, 1, asked)
        kinds = [(number, _pairs_of(one)) for number, one in sorted(expected.items())]
        assert kinds == [(n, _pairs_of(one)) for n, one in sorted(found.items())]
        assert 0.2 < sum(one is None for one in found.values()) / len(asked) < 0.8
        assert {} == reader.find_in_slices(0, 2, asked)
        reader.close()


def _slices_of_all_kinds(
    chance: random.Random, stored: StoredChunks, pairs: list[Pair]
) -> Slices:
    """Ask for IDs that are there and for others, inside of slices and beside them."""
    rows = []
    by_chunk: dict[int, list[Pair]] = {}
    for hi, lo in sorted(pairs):
        by_chunk.setdefault(hi * stored.count >> 64, []).append((hi, lo))
    for _ in range(2_000):
        chunk, held = chance.choice(list(by_chunk.items()))
        start = chance.randrange(len(held))
        length = chance.randint(1, len(held) - start)
        hi, lo = held[chance.randrange(max(start - 1, 0), len(held))]
        rows.append((chunk, start, length, hi, lo + chance.choice([-1, 0, 0, 1])))
    chunks, starts, lengths, his, los = zip(*rows, strict=True)
    return Slices(
        chunks=np.array(chunks),
        starts=np.array(starts),
        lengths=np.array(lengths),
        hi=np.array(his, dtype=np.uint64),
        lo=np.array(los, dtype=np.uint64),
    )


def _pairs_of(entries: Entries | None) -> list[tuple[int, int, int]] | None:
    if entries is None:
        return None
    columns = (entries.hi, entries.lo, entries.payload_hashes)
    return list(zip(*(column.tolist() for column in columns), strict=True))
