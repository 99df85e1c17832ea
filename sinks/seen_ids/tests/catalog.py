"""A catalog in memory, and rows and runs as tests write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from sinks.protocol.errors import RetryableError
from sinks.seen_ids.claim import Candidates
from sinks.seen_ids.ordering import I64Array
from sinks.seen_ids.round_claims import RoundClaims
from sinks.seen_ids.run import Run
from sinks.seen_ids.segment import Columns, SegmentView

P = ParamSpec("P")
T = TypeVar("T")
Pair = tuple[int, int]
#: Partition, offset, bucket, fingerprint, payload hash.
Row = tuple[int, int, int, Pair, int]


class AtOnce(Executor):
    """Does what it is given before it returns, so that tests know when."""

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except RetryableError as error:
            future.set_exception(error)
        return future


class MemoryCatalog:
    """Stands for the table of runs; what is appended is committed.

    Attributes:
        fetched: How many runs were handed out.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[int, Run]] = []
        self.fetched = 0

    def append(self, sequence: int, runs: list[Run]) -> None:
        self._runs += [(sequence, run) for run in runs]
        self._runs.sort(key=lambda entry: entry[0])

    def fetch_runs(
        self, *, after_sequence: int, through_sequence: int, live_from_bucket: int
    ) -> Iterator[tuple[int, Run]]:
        for sequence, run in self._runs:
            in_range = after_sequence < sequence <= through_sequence
            if in_range and run.bucket >= live_from_bucket:
                self.fetched += 1
                yield sequence, run


def run_of(
    pairs: list[Pair], *, bucket: int = 0, payload_hash: int | None = None
) -> Run:
    """Return a run of some fingerprints, in any order."""
    hashes = None
    if payload_hash is not None:
        hashes = np.full(len(pairs), payload_hash, dtype=np.uint64)
    return Run(
        bucket=bucket,
        fingerprints=np.array(sorted(pairs), dtype=np.uint64),
        payload_hashes=hashes,
    )


def view_of(*runs: Run, live_from_bucket: int = 0) -> SegmentView:
    """Show some runs, the oldest first, without a cache."""
    parts = tuple(Columns.of_run(run) for run in runs)
    return SegmentView(parts=parts, live_from_bucket=live_from_bucket)


def candidates_of(
    rows: Sequence[Row],
    *,
    keep_hashes: bool = True,
    only_corrects: Sequence[bool] | None = None,
) -> tuple[Candidates, I64Array]:
    """Return rows as they may ask, and where each of them was written."""
    pairs = np.array([row[3] for row in rows], dtype=np.uint64).reshape(-1, 2)
    hashes = np.array([row[4] for row in rows], dtype=np.uint64)
    written = Candidates(
        place=np.array([row[0] for row in rows], dtype=np.int64),
        offset=np.array([row[1] for row in rows], dtype=np.int64),
        bucket=np.array([row[2] for row in rows], dtype=np.int64),
        hi=np.ascontiguousarray(pairs[:, 0]),
        lo=np.ascontiguousarray(pairs[:, 1]),
        payload_hashes=hashes if keep_hashes else None,
        only_corrects=None
        if only_corrects is None
        else np.array(only_corrects, dtype=np.bool_),
    )
    order = written.order()
    return written.take(order), order


def ask(
    claims: RoundClaims,
    rows: Sequence[Row],
    *,
    keep_hashes: bool = True,
    only_corrects: Sequence[bool] | None = None,
) -> list[int]:
    """Ask in the order that is needed; tell the classes of the rows as written."""
    asked, order = candidates_of(
        rows, keep_hashes=keep_hashes, only_corrects=only_corrects
    )
    return as_written(claims.ask(asked).classes, order)


def as_written(answer: npt.NDArray[Any], order: I64Array) -> list[int]:
    """Bring one column of an answer into the order in which rows were written."""
    written = np.empty_like(answer)
    written[order] = answer
    found: list[int] = written.tolist()
    return found
