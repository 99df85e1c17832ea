"""Claims over the copy of the catalog equal a dictionary, whatever happens.

The IDs of the two batches before are not read from the catalog: of the last as if it
were still being published, of the other because its round has given them away.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.sinks.seen_ids import (
    catalog_copy,
    chunk,
    round_claims,
    segment,
    stored_chunks,
)
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy, HeldBatches
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer, RowClass, new_runs
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder, RoundTerms
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView
from tallyweir.sinks.seen_ids.tests.catalog import (
    AtOnce,
    MemoryCatalog,
    Never,
    Pair,
    Row,
    as_written,
    candidates_of,
)

Position = tuple[int, int]
#: A row, and whether it asks only for what the catalog holds.
Asking = tuple[Row, bool]
#: Of one question: what each row is told.
Answer = dict[Position, RowClass]
#: Bucket, fingerprint, payload hash.
Filed = tuple[int, Pair, int]

_SURVIVING = {RowClass.SURVIVOR, RowClass.CORRECTION}

_PAIRS = [(hi, lo) for hi in (1, 2, 2**63) for lo in range(5)]
_PICK = st.tuples(
    st.integers(0, 3), st.sampled_from(_PAIRS), st.integers(1, 2), st.booleans()
)
_BATCH = st.tuples(
    st.just("batch"),
    st.lists(_PICK, max_size=12),
    st.integers(0, 1),
    st.randoms(use_true_random=False),
    st.booleans(),
    st.sampled_from(["publish", "publish by position", "throw away"]),
)
_STEP = st.one_of(
    _BATCH,
    _BATCH,
    st.tuples(st.just("replay"), st.integers(0, 30)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("merge"), st.integers(0, 2), st.booleans()),
)


@dataclass(frozen=True)
class _Known:
    """What the catalog knows of an ID: its newest payload, and where it is filed."""

    payload_hash: int
    bucket: int


@dataclass
class _Batch:
    """Rows of a batch, how tasks ask for them, and what the catalog knew before."""

    sequence: int
    live_from: int
    corrects: bool
    known: dict[Pair, _Known]
    #: Questions of one round in their order; some tasks ask several times.
    schedule: list[list[Asking]]
    #: As ``schedule``, of a second round of the same rows.
    schedule_again: list[list[Asking]]
    by_position: bool


class _Model:
    """What a round answers, row by row, out of a dictionary."""

    def __init__(self, batch: _Batch) -> None:
        self._batch = batch
        #: Who holds each ID, what that row is, and the payload that counts.
        self._held: dict[Pair, tuple[Position, RowClass, int]] = {}
        self._filed: dict[Position, Filed] = {}
        self.is_overtaken = False

    def ask(self, question: Sequence[Asking]) -> Answer:
        return {row[:2]: self._ask(row, only) for row, only in sorted(question)}

    @property
    def filed(self) -> list[Filed]:
        """All survivors so far, as they are to be filed."""
        return sorted(self._filed.values())

    def _ask(self, row: Row, only_corrects: bool) -> RowClass:  # noqa: FBT001
        *_, bucket, pair, payload_hash = row
        position, known = row[:2], self._batch.known.get(pair)
        if only_corrects and known is None:
            return RowClass.UNKNOWN
        if known is not None and not self._batch.corrects:
            return _repeat(payload_hash, known.payload_hash)
        if pair not in self._held:
            if known is None:
                holder = (position, RowClass.SURVIVOR, payload_hash)
            elif known.payload_hash == payload_hash:
                holder = (position, RowClass.DUPLICATE, payload_hash)
            else:
                holder = (position, RowClass.CORRECTION, payload_hash)
                bucket = max(bucket, known.bucket)
            self._held[pair] = holder
            if holder[1] in _SURVIVING:
                self._filed[position] = (bucket, pair, payload_hash)
        held_by, row_class, counts = self._held[pair]
        self.is_overtaken |= position < held_by
        return row_class if position == held_by else _repeat(payload_hash, counts)


def _repeat(payload_hash: int, counts: int) -> RowClass:
    return RowClass.DUPLICATE if payload_hash == counts else RowClass.CONFLICT


@dataclass
class _World:
    """A catalog in memory, the model beside it, and a copy of it."""

    directory: Path
    #: Whether what happens behind the batches' backs is ever done.
    is_idle: bool
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    filed: list[Filed] = field(default_factory=list)
    batches: list[_Batch] = field(default_factory=list)
    live_from: int = 0
    offset: int = 0
    #: The batches that the holder has staged last, of those that still count.
    reviewed: tuple[int, ...] = ()
    #: The newest batch of those that were read from the catalog.
    read_through: int = -1

    def __post_init__(self) -> None:
        self.restart()

    def batch(
        self,
        picks: list[tuple[int, Pair, int, bool]],
        expire: int,
        rng: random.Random,
        *,
        corrects: bool,
        by_position: bool,
    ) -> _Batch:
        self.live_from += expire
        rows: list[Asking] = []
        for ahead, pair, payload_hash, only_corrects in picks:
            self.offset += 1
            bucket = self.live_from + ahead
            row = (self.offset % 3, self.offset, bucket, pair, payload_hash)
            rows.append((row, only_corrects and corrects))
        tasks = [[] for _ in range(rng.randint(1, 5))]  # type: list[list[Asking]]
        for asking in rows:
            rng.choice(tasks).append(asking)
        return _Batch(
            sequence=len(self.batches),
            live_from=self.live_from,
            corrects=corrects,
            known=self.known(),
            schedule=_schedule(tasks, rng),
            schedule_again=_schedule(tasks, rng),
            by_position=by_position,
        )

    def known(self) -> dict[Pair, _Known]:
        """Each ID that is kept, with its newest payload: as long as any that it had."""
        until: dict[Pair, int] = {}
        newest: dict[Pair, int] = {}
        for bucket, pair, payload_hash in self.filed:
            until[pair] = max(bucket, until.get(pair, bucket))
            newest[pair] = payload_hash
        return {
            pair: _Known(newest[pair], until[pair])
            for pair in newest
            if until[pair] >= self.live_from
        }

    def claim(self, batch: _Batch) -> tuple[list[Filed], list[Run]]:
        """Stage a batch through the copy, beside the model; return what survives."""
        number = self.holder.begin(
            RoundTerms(
                through_sequence=batch.sequence - 1,
                live_from_bucket=batch.live_from,
                corrects=batch.corrects,
            )
        )
        model = _Model(batch)
        runs = _ask_all(partial(self.holder.ask, number), model, batch.schedule)
        again = self._review(batch, runs)
        assert (again is not None) == (batch.by_position and model.is_overtaken)
        if again is not None:
            model = _Model(batch)
            # One question of all rows: the first by position asks first.
            model.ask([asking for task in batch.schedule for asking in task])
            asked = partial(self.holder.ask, again)
            runs = _ask_all(asked, model, batch.schedule_again)
            assert self._review(batch, runs) is None
        before = [number for number in self.reviewed if number < batch.sequence]
        is_ahead = batch.sequence - 1 in before
        assert self.read_through == batch.sequence - 1 - is_ahead
        self.reviewed = (*before[-1:], batch.sequence)
        return model.filed, runs

    def _review(self, batch: _Batch, runs: list[Run]) -> int | None:
        return self.holder.review(sum(map(len, runs)), in_order=batch.by_position)

    def publish(self, batch: _Batch, filed: list[Filed], runs: list[Run]) -> None:
        self.catalog.append(batch.sequence, runs)
        self.filed += filed
        self.batches.append(batch)

    def merge(self, through_sequence: int) -> None:
        """Merge every bucket, the latest first."""
        for bucket in sorted({bucket for bucket, *_ in self.filed}, reverse=True):
            self.catalog.merge(bucket, through_sequence)

    def restart(self) -> None:
        """Begin as a driver that knows nothing but the catalog."""
        copy = CatalogCopy(self.directory, AtOnce() if self.is_idle else Never())

        def open_view(terms: RoundTerms, held: Mapping[int, Columns]) -> SegmentView:
            self.read_through = terms.through_sequence
            return copy.view(
                catalog=HeldBatches(held, self.catalog),
                live_from_bucket=terms.live_from_bucket,
                through_sequence=terms.through_sequence,
            )

        self.holder = ClaimHolder(open_view)
        self.reviewed = ()
        # It has a thread for this, which the test must not race with.
        self.holder._opener = AtOnce()  # type: ignore[assignment]


def _schedule(tasks: list[list[Asking]], rng: random.Random) -> list[list[Asking]]:
    """Let every task ask once, and some again, in any order."""
    asks = [*tasks, *rng.choices(tasks, k=rng.randint(0, 4))]
    rng.shuffle(asks)
    for question in asks:
        rng.shuffle(question)
    return asks


def _ask_all(
    ask: Callable[[Candidates], ClaimAnswer],
    model: _Model,
    schedule: list[list[Asking]],
) -> list[Run]:
    """Ask both alike; return the runs that the tasks' last attempts have made."""
    runs: dict[int, list[Run]] = {}
    for question in schedule:
        rows = [row for row, _ in question]
        only_corrects = [only for _, only in question]
        asked, order = candidates_of(
            rows, only_corrects=only_corrects if any(only_corrects) else None
        )
        answer = ask(asked)
        told = as_written(answer.classes, order)
        positions = [row[:2] for row in rows]
        assert dict(zip(positions, told, strict=True)) == model.ask(question)
        runs[id(question)] = new_runs(answer, asked)
    made = [run for of_task in runs.values() for run in of_task]
    assert sorted(filed for run in made for filed in _filed_in(run)) == model.filed
    return made


def _filed_in(run: Run) -> Iterator[Filed]:
    assert run.payload_hashes is not None
    hashes = run.payload_hashes.tolist()
    for (hi, lo), payload_hash in zip(run.fingerprints.tolist(), hashes, strict=True):
        yield run.bucket, (hi, lo), payload_hash


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(_STEP, max_size=20),
    sizes=st.tuples(
        st.sampled_from([1, 3, 1_000]),
        st.sampled_from([1, 3, 32]),
        st.sampled_from([42, 62, 63]),
        st.sampled_from([0, 2, 1_000]),
        st.sampled_from([0.0, 30.0]),
    ),
    is_idle=st.booleans(),
)
def test_claims_equal_a_dictionary_whatever_happens(
    steps: list[tuple[object, ...]],
    sizes: tuple[int, int, int, int, float],
    is_idle: bool,  # noqa: FBT001
) -> None:
    """No restart, expiry, retry, merge or order of tasks changes an answer."""
    chunk_ids, parts, shift, look_ups, price = sizes
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog_copy, "_CHUNK_IDS", chunk_ids)
        patch.setattr(segment, "_BLOCK_IDS", chunk_ids)
        patch.setattr(chunk, "CHUNK_IDS", chunk_ids)
        patch.setattr(chunk, "_SPILLED_ENTRIES", chunk_ids)
        patch.setattr(stored_chunks, "_FETCHED_IDS", chunk_ids)
        patch.setattr(stored_chunks, "_LOOK_UPS_MAX", look_ups)
        patch.setattr(stored_chunks, "_FETCH_US", price)
        patch.setattr(round_claims, "_PARTS_MAX", parts)
        patch.setattr(round_claims, "_SLOT_SHIFT", np.uint64(shift))
        world = _World(Path(folder), is_idle)
        for what, *arguments in steps:
            if what == "batch":
                picks, expire, rng, corrects, end = arguments
                batch = world.batch(
                    picks,  # type: ignore[arg-type]
                    expire,  # type: ignore[arg-type]
                    rng,  # type: ignore[arg-type]
                    corrects=bool(corrects),
                    by_position=end == "publish by position",
                )
                filed, runs = world.claim(batch)
                if end != "throw away":
                    world.publish(batch, filed, runs)
            elif what == "replay":
                if world.batches:
                    at = int(str(arguments[0])) % len(world.batches)
                    world.claim(world.batches[at])
            elif what == "merge":
                margin, restarts = arguments
                world.merge(len(world.batches) - 1 - int(str(margin)))
                if restarts:
                    world.restart()
            else:
                world.restart()
