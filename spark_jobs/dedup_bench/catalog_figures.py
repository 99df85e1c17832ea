"""What is measured of the seen-ID catalog: seconds, bytes, and look-ups."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sinks.seen_ids.bloom_filter import Asked, BloomFilter
from sinks.seen_ids.claim import Candidates, Claim
from sinks.seen_ids.ordering import BoolArray, I64Array, U64Array
from spark_jobs.dedup_bench.ids_driver import IdsDriver, PlannedBatch

_KIBI = 1024
_BLOCK = 512
#: Less processor time than that, in so many seconds, is a process that has nothing
#: to do.
_QUIET_S, _LOOK_S = 0.02, 0.5
#: It may have been waiting for the disk; so it must be quiet several times in a row.
_QUIET_LOOKS = 4
_LOOKS_MAX = 600


@dataclass(slots=True, kw_only=True)
class AskedBatch:
    """How a batch's claims went.

    Attributes:
        filing: Seconds until the batch before it was fetched and filed.
        probing: Seconds until all questions were answered.
        probing_processor: Those of them that the answering thread has worked.
        claims: The answers.
    """

    filing: float
    probing: float
    probing_processor: float
    claims: Sequence[Claim]

    @property
    def survivors(self) -> int:
        return sum(int(np.count_nonzero(claim.survives)) for claim in self.claims)


def ask_all(driver: IdsDriver, batch: PlannedBatch) -> AskedBatch:
    """Let every task of a batch ask, one after the other."""
    began = time.perf_counter()
    number = driver.begin(batch)
    # Whoever asks first waits for the catalog; who asks for nothing does only that.
    driver.holder.ask(number, _nothing_of(batch))
    worked, filed = time.thread_time(), time.perf_counter()
    claims = [driver.holder.ask(number, one.candidates) for one in batch.questions]
    return AskedBatch(
        filing=filed - began,
        probing=time.perf_counter() - filed,
        probing_processor=time.thread_time() - worked,
        claims=claims,
    )


def settle(driver: IdsDriver, batch: PlannedBatch) -> None:
    """Wait until nothing is merged any more behind the batches' backs.

    What is ready is taken when a round begins, which may start the next merge.
    """
    quiet = 0
    for _ in range(_LOOKS_MAX):
        driver.holder.ask(driver.begin(batch), _nothing_of(batch))
        used = time.process_time()
        time.sleep(_LOOK_S)
        is_quiet = time.process_time() - used < _QUIET_S and not _awaits_disk()
        quiet = quiet + 1 if is_quiet else 0
        if quiet == _QUIET_LOOKS:
            return
    raise TimeoutError("the copy of the catalog is merged for minutes")


def _awaits_disk() -> bool:
    """Tell whether a thread of this process waits for the disk, as merges do."""
    states = (
        (task / "stat").read_text().rpartition(") ")[2][0]
        for task in Path("/proc/self/task").iterdir()
    )
    return "D" in states


def _nothing_of(batch: PlannedBatch) -> Candidates:
    return batch.questions[0].candidates.take(np.empty(0, dtype=np.int64))


@dataclass(slots=True, kw_only=True)
class FilterCounts:
    """What Bloom filters were asked, and what they could not rule out.

    Attributes:
        asked: Questions, one for each ID and filter.
        passed: Those that were answered with "maybe".
        passing: First words of the IDs that some filter has not ruled out.
    """

    asked: int = 0
    passed: int = 0
    passing: list[U64Array] = field(default_factory=list)

    @property
    def looked_up(self) -> U64Array:
        """First words of the IDs that were looked up, each of them once."""
        return np.unique(np.concatenate(self.passing or [_NO_WORDS]))

    def share_of(self, batch: PlannedBatch) -> float:
        """Return the share of a batch's events whose IDs were looked up."""
        looked_up = self.looked_up
        found = [_are_in(one.candidates.hi, looked_up) for one in batch.questions]
        return float(np.concatenate(found).mean())


_NO_WORDS: U64Array = np.empty(0, dtype=np.uint64)


@contextmanager
def counted_filters() -> Iterator[FilterCounts]:
    """Count what the product's filters are asked meanwhile, which takes time."""
    counts = FilterCounts()
    plain = BloomFilter.find_possible

    def counting(bloom: BloomFilter, asked: Asked) -> I64Array:
        rows = plain(bloom, asked)
        counts.asked += len(asked)
        counts.passed += len(rows)
        counts.passing.append(asked.hi[rows])
        return rows

    setattr(BloomFilter, "find_possible", counting)  # noqa: B010 - mypy forbids `=`
    try:
        yield counts
    finally:
        setattr(BloomFilter, "find_possible", plain)  # noqa: B010 - as above


def _are_in(words: U64Array, wanted: U64Array) -> BoolArray:
    is_in: BoolArray = np.isin(words, wanted)
    return is_in


def memory_bytes() -> int:
    """Return the memory of this process that is no file."""
    status = Path("/proc/self/status").read_text()
    (line,) = (one for one in status.splitlines() if one.startswith("RssAnon:"))
    return int(line.split()[1]) * _KIBI


def disk_bytes(directory: Path) -> int:
    """Return the room that files in a directory take which this process works with.

    Those without a name are found among its mappings.
    """
    sizes: dict[int, int] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        _, _, _, _, inode, *path = line.split(maxsplit=5)
        if path and path[0].startswith(f"{directory}/"):
            sizes[int(inode)] = _mapped_room(line.split(maxsplit=1)[0])
    for folder, _, names in os.walk(directory):
        for name in names:
            stat = (Path(folder) / name).stat()
            sizes[stat.st_ino] = stat.st_blocks * _BLOCK
    return sum(sizes.values())


def _mapped_room(span: str) -> int:
    stat = Path("/proc/self/map_files") / span
    try:
        return stat.stat().st_blocks * _BLOCK
    except OSError:
        # Only who may look into every process may look there.
        begin, end = (int(address, 16) for address in span.split("-"))
        return end - begin
