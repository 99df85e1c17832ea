"""Finds an event that reaches a task twice, which only a transform can cause."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.spark_jobs.source import event_columns as named


def check_positions_differ(table: pa.Table) -> None:
    """Refuse a task's rows if they hold an event twice.

    If a transform doubles one event and loses another, the counts that the conservation
    law compares stay the same.

    Raises:
        FatalError: ``EVENT_DOUBLED``.
    """
    positions = np.rec.fromarrays(
        [np.asarray(table.column(name)) for name in (named.PLACE, named.OFFSET)]
    )
    doubled = len(positions) - len(np.unique(positions))
    if doubled:
        raise FatalError(
            "EVENT_DOUBLED",
            saw=f"{doubled} of {len(positions)} events reached a task twice.",
            why="Each event must count once; nothing of this batch was published.",
            fix="Make the pipeline's transform return exactly one row for each row "
            "that it receives.",
        )
