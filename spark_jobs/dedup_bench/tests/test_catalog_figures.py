"""What is asked and weighed of a catalog is what is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder, RoundTerms
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView, write_merged
from tallyweir.spark_jobs.dedup_bench.catalog_figures import ask_all
from tallyweir.spark_jobs.dedup_bench.ids_driver import (
    TASKS,
    IdsDriver,
    PlannedBatch,
    ids_of,
    questions_of,
)

_KNOWN = 10_000
_TAKES_MEMORY = """
import numpy as np
from tallyweir.spark_jobs.dedup_bench.catalog_figures import memory_bytes

before = memory_bytes()
taken = np.ones(32 << 20, dtype=np.uint8)
print(memory_bytes() - before)
"""
_TERMS = RoundTerms(through_sequence=1, live_from_bucket=0, corrects=False)


class _HolderAlone:
    """Begins rounds on one view; a driver has nothing else to do here."""

    def __init__(self, holder: ClaimHolder) -> None:
        self.holder = holder

    def begin(self, _batch: PlannedBatch) -> int:
        return self.holder.begin(_TERMS)


def _batch(numbers: Sequence[int]) -> PlannedBatch:
    questions = questions_of(
        np.array(numbers, dtype=np.int64), starts=[0] * TASKS, bucket_seconds=60
    )
    return PlannedBatch(plan=cast(BatchPlan, None), questions=questions)


def _known(directory: Path) -> Columns:
    pairs = ids_of(np.arange(_KNOWN, dtype=np.int64))
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    run = Run(bucket=0, fingerprints=pairs, payload_hashes=None)
    return write_merged(directory, [Columns.of_run(run)], 0)


def test_events_survive_unless_they_are_there(tmp_path: Path) -> None:
    """An event may be in two places."""
    known = _known(tmp_path)
    view = SegmentView(parts=(known, known), live_from_bucket=0)
    batch = _batch(range(_KNOWN - 1_000, _KNOWN + 9_000))
    with ClaimHolder(lambda _terms, _held: view) as holder:
        asked = ask_all(cast(IdsDriver, _HolderAlone(holder)), batch)

    assert 9_000 == asked.survivors


def test_memory_grows_by_what_is_taken() -> None:
    """Pages count once they are written to."""
    # A process of its own, for nobody else to free memory meanwhile.
    grown = subprocess.run(
        [sys.executable, "-c", _TAKES_MEMORY], capture_output=True, check=True
    )
    assert 30 << 20 <= int(grown.stdout) < 40 << 20
