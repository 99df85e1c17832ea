"""Names of the protocol's actors and steps: pipelines, epochs, batches, attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

PipelineName = NewType("PipelineName", str)

#: Fencing generation of a pipeline's driver. Claimed in the home database, never
#: reused, never decreasing; a driver whose epoch is not the newest must stop.
Epoch = NewType("Epoch", int)

#: Our own batch number: dense per pipeline. The ledger counts it, so it goes back
#: together with the results when the database is restored.
Sequence = NewType("Sequence", int)

#: The number of a batch among those of its claim, whether Spark or the driver has
#: planned it. It restarts at 0 with every claim, so it identifies a batch only together
#: with the epoch.
SparkBatchId = NewType("SparkBatchId", int)

#: One try at one task; a retried or speculative try of the same task is another. Each
#: claim names its attempts (``EpochClaim.attempt``), so two claims never share a name.
Attempt = NewType("Attempt", int)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BatchKey:
    """Identifies one planned batch over all drivers that a pipeline ever had.

    A tick is a batch without events; it has no number.
    """

    epoch: Epoch
    spark_batch_id: SparkBatchId | None

    def __str__(self) -> str:
        if self.spark_batch_id is None:
            return f"epoch {self.epoch} tick"
        return f"epoch {self.epoch} batch {self.spark_batch_id}"
