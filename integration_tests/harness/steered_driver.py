"""``python -m integration_tests.harness.steered_driver``: drives a steered pipeline.

As ``light_driver``, of the pipeline of ``steered_pipeline``: with windows, IDs and dead
letters. Its orders have the topic as "log", and as "version" which of both layouts it
runs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from integration_tests.harness.light_driver import LightDriver, run_light_driver
from integration_tests.harness.postgres_driver import PIPELINE, PostgresDriver
from integration_tests.harness.steered_pipeline import LAYOUTS, StagedIds, stage
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.protocol.ports import BatchPlan, RejectedRow, StagedBatch


class SteeredDriver(LightDriver):
    """Runs batches until an offset is reached, as the version that it has."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        super().__init__(orders)
        # Files in it have no names, so nothing is left when the process dies.
        self._directory = Path(tempfile.gettempdir())
        self._ids: tuple[int, StagedIds] | None = None

    def _lay_out(self) -> PipelineLayout:
        return LAYOUTS[self._orders["version"]]

    def _stage(
        self,
        driver: PostgresDriver,
        plan: BatchPlan,
        rejected: Sequence[RejectedRow],
    ) -> StagedBatch:
        assert not rejected, "the tables refuse nothing"
        if self._ids is None or self._ids[0] != driver.epoch:
            ids = StagedIds(self._orders["home"], PIPELINE, self._directory)
            self._ids = (driver.epoch, ids)
        vote = stage(driver, plan, self._orders["log"], self._ids[1])
        (covered,) = plan.ranges
        return StagedBatch(votes=[vote], records_read=covered.length)


if __name__ == "__main__":
    sys.exit(run_light_driver(SteeredDriver))
