"""Claims over the cache equal a dictionary, whatever happens to the cache."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.seen_ids import segment_cache
from sinks.seen_ids.claim import NO_WINNER, RowClass, claim, find_known, new_runs
from sinks.seen_ids.run import Run
from sinks.seen_ids.segment_cache import SegmentCache
from sinks.seen_ids.tests.catalog import candidates_of

Pair = tuple[int, int]
Row = tuple[int, int, int, Pair, int]
Answer = dict[tuple[int, int], tuple[int, tuple[int, int] | None]]

SHARDS = 2

_SURVIVING = {RowClass.SURVIVOR, RowClass.CORRECTION}

_PAIRS = [(hi, lo) for hi in (1, 2, 2**63) for lo in range(5)]
_STEP = st.one_of(
    st.tuples(
        st.just("batch"),
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from(_PAIRS), st.integers(1, 2)),
            max_size=8,
        ),
        st.integers(0, 1),
        st.randoms(use_true_random=False),
        st.booleans(),
    ),
    st.tuples(st.just("replay"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["restart", "lose", "damage", "other process"])),
)


@dataclass
class _Batch:
    """A published batch, as it was first claimed."""

    sequence: int
    live_from: int
    rows: list[Row]
    corrects: bool
    known: dict[Pair, int]
    answer: Answer


@dataclass
class _World:
    """A catalog in memory, the model beside it, and a cache that things happen to."""

    directory: Path
    runs: list[tuple[int, Run]] = field(default_factory=list)
    model: list[tuple[int, int, Pair, int]] = field(default_factory=list)
    batches: list[_Batch] = field(default_factory=list)
    live_from: int = 0
    epoch: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        self.cache = SegmentCache(self.directory, "epoch-0")

    def fetch_runs(
        self,
        *,
        shard: int,
        after_sequence: int,
        through_sequence: int,
        live_from_bucket: int,
    ) -> Iterator[tuple[int, Run]]:
        for sequence, run in self.runs:
            if (
                run.shard == shard
                and after_sequence < sequence <= through_sequence
                and run.bucket >= live_from_bucket
            ):
                yield sequence, run

    def batch(
        self, picks: list[tuple[int, Pair, int]], expire: int, *, corrects: bool
    ) -> _Batch:
        self.live_from += expire
        rows: list[Row] = []
        for ahead, pair, payload_hash in picks:
            self.offset += 1
            bucket = self.live_from + ahead
            rows.append((self.offset % 3, self.offset, bucket, pair, payload_hash))
        known = self.known()
        answer = _expected(rows, dict(known), corrects=corrects)
        sequence = len(self.batches)
        return _Batch(sequence, self.live_from, rows, corrects, known, answer)

    def known(self) -> dict[Pair, int]:
        """Each ID that is kept, with its newest payload: as long as any that it had."""
        until: dict[Pair, int] = {}
        newest: dict[Pair, int] = {}
        for _, bucket, pair, payload_hash in self.model:
            until[pair] = max(bucket, until.get(pair, bucket))
            newest[pair] = payload_hash
        return {p: kept for p, kept in newest.items() if until[p] >= self.live_from}

    def claim(self, batch: _Batch) -> tuple[Answer, list[Run]]:
        """Claim a batch shard by shard through the cache."""
        answer: Answer = {}
        runs: list[Run] = []
        for shard in range(SHARDS):
            rows = [row for row in batch.rows if sum(row[3]) % SHARDS == shard]
            view = self.cache.view(
                shard=shard,
                catalog=self,
                live_from_bucket=batch.live_from,
                through_sequence=batch.sequence - 1,
            )
            candidates = candidates_of(rows, shard=shard)
            is_known = [row[3] in batch.known for row in rows]
            assert find_known(candidates, view).tolist() == is_known
            claimed = claim(candidates, view, corrects=batch.corrects)
            runs += new_runs(claimed, candidates)
            for at, row in enumerate(rows):
                winner = claimed.winners[at]
                place = None if winner == NO_WINNER else rows[winner][:2]
                answer[row[:2]] = (int(claimed.classes[at]), place)
        return answer, runs

    def publish(self, batch: _Batch, runs: list[Run]) -> None:
        self.runs += [(batch.sequence, run) for run in runs]
        self.batches.append(batch)
        for partition, offset, bucket, pair, payload_hash in batch.rows:
            if batch.answer[partition, offset][0] in _SURVIVING:
                self.model.append((batch.sequence, bucket, pair, payload_hash))

    def disturb(self, what: str) -> None:
        if what == "restart":
            self.epoch += 1
        elif what == "lose":
            shutil.rmtree(self.directory, ignore_errors=True)
        elif what == "damage":
            for path in self.directory.rglob("*.segment"):
                stored = bytearray(path.read_bytes())
                stored[len(stored) // 3] ^= 1
                path.unlink()
                path.write_bytes(stored)
        if what != "lose":
            self.cache = SegmentCache(self.directory, f"epoch-{self.epoch}")


def _expected(rows: list[Row], kept: dict[Pair, int], *, corrects: bool) -> Answer:
    """Decide row by row what a batch makes of its rows, from the payloads kept."""
    winners: dict[Pair, tuple[int, int]] = {}
    settled: set[Pair] = set()
    answer: Answer = {}
    for partition, offset, _, pair, payload_hash in sorted(rows):
        position = (partition, offset)
        before = kept.get(pair)
        if before is None:
            answer[position] = (RowClass.SURVIVOR, None)
            kept[pair], winners[pair] = payload_hash, position
        elif before == payload_hash:
            answer[position] = (RowClass.DUPLICATE, winners.get(pair))
        elif corrects and pair not in settled:
            answer[position] = (RowClass.CORRECTION, None)
            kept[pair], winners[pair] = payload_hash, position
        else:
            answer[position] = (RowClass.CONFLICT, winners.get(pair))
        settled.add(pair)
    return answer


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(_STEP, max_size=25), chunk=st.sampled_from([1, 3, 1_000]))
def test_claims_equal_a_dictionary_whatever_happens(
    steps: list[tuple[object, ...]], chunk: int
) -> None:
    """No restart, loss, damage, replay, expiry or order of rows changes an answer."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_cache, "_CHUNK_IDS", chunk)
        world = _World(Path(folder) / "cache")
        for what, *arguments in steps:
            if what == "batch":
                picks, expire, rng, corrects = arguments
                batch = world.batch(
                    picks,  # type: ignore[arg-type]
                    expire,  # type: ignore[arg-type]
                    corrects=bool(corrects),
                )
                answer, runs = world.claim(batch)
                assert answer == batch.answer
                rng.shuffle(batch.rows)  # type: ignore[attr-defined]
                assert world.claim(batch)[0] == batch.answer
                world.publish(batch, runs)
            elif what == "replay":
                if world.batches:
                    at = int(str(arguments[0])) % len(world.batches)
                    again = world.batches[at]
                    assert world.claim(again)[0] == again.answer
            else:
                world.disturb(str(what))
