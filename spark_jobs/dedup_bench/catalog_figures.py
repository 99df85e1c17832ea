"""Measures the seen-ID catalog: seconds and bytes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer
from tallyweir.spark_jobs.dedup_bench.ids_driver import IdsDriver, PlannedBatch

_KIBI = 1024
#: A process is idle if it uses less processor time than ``_QUIET_S`` in ``_LOOK_S``.
_QUIET_S, _LOOK_S = 0.02, 0.5
#: A process that waits for the disk is quiet as well, so it must be quiet several times
#: in a row.
_QUIET_LOOKS = 4
_LOOKS_MAX = 600


@dataclass(slots=True, kw_only=True)
class AskedBatch:
    """The claims of a batch, and how long they took.

    Attributes:
        probing: Seconds until the holder had answered all questions, once it had
            fetched and filed the batch before.
        claims: The answers.
    """

    probing: float
    claims: Sequence[ClaimAnswer]

    @property
    def survivors(self) -> int:
        return sum(int(np.count_nonzero(claim.survives)) for claim in self.claims)


def ask_all(driver: IdsDriver, batch: PlannedBatch) -> AskedBatch:
    """Let every task of a batch ask, one after the other."""
    number = driver.begin(batch)
    # The first question waits for the catalog; an empty question does only that.
    driver.holder.ask(number, _nothing_of(batch))
    filed = time.perf_counter()
    claims = [driver.holder.ask(number, one.candidates) for one in batch.questions]
    return AskedBatch(probing=time.perf_counter() - filed, claims=claims)


def settle(driver: IdsDriver, batch: PlannedBatch) -> None:
    """Wait until no merge runs in the background any more.

    A round that begins takes the merges that are ready, which may start the next merge.
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


def memory_bytes() -> int:
    """Return the memory of this process that belongs to no file."""
    status = Path("/proc/self/status").read_text()
    (line,) = (one for one in status.splitlines() if one.startswith("RssAnon:"))
    return int(line.split()[1]) * _KIBI
