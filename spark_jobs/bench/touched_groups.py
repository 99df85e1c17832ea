"""What a batch of windows costs by how many groups it touches, half by half.

``./tallyweir bench windows`` runs it; ``window_batches`` says what a batch is.

Prints one line of JSON for each number of groups.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from sinks.postgres.schema.migrations import migrate
from sinks.postgres.server.branch_names import HOME
from sinks.settings import HOME_DSN_VARIABLE, read_setting
from spark_jobs.bench.window_batches import START, TaskEvents, WindowBatches
from spark_jobs.pipeline import load_pipeline
from spark_jobs.pipeline.window import WindowOutput
from spark_jobs.tables.window_layout import window_table

#: Of pipelines that the home has not registered.
_FIRST_NUMBER = 1_001
_TASKS = 4
#: Windows that are open at a time, and how long each is.
_WINDOWS = 10
_WINDOW_S = 10
#: Batches that touch groups which are there already.
_UPDATES = 3
_SECOND_US = 1_000_000


def main() -> None:
    """Measure batches of so many events, once for each number of groups."""
    file, events, *sizes = sys.argv[1:]
    (output,) = load_pipeline(Path(file)).outputs
    assert isinstance(output, WindowOutput), "the benchmark's pipeline has windows"
    dsn = read_setting(os.environ, HOME_DSN_VARIABLE) or ""
    migrate(dsn)
    for number, groups in enumerate(map(int, sizes), start=_FIRST_NUMBER):
        table = window_table(0, output, "output_0", {"user_id": "bigint"}, (HOME,))
        table = replace(table, table=f"{table.table}_of_{groups}")
        batches = WindowBatches(dsn, number, table)
        figures = _measure(batches, events=int(events), groups=groups)
        figures |= {"table": table.table}
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()


def _measure(batches: WindowBatches, *, events: int, groups: int) -> dict[str, object]:
    """Open the groups, touch them again, and close them all."""
    tasks = _events_of_tasks(events, groups)
    opening, *others = [batches.run(tasks) for _ in range(1 + _UPDATES)]
    closing_s = batches.close_all(START + timedelta(days=1))
    batches.end()

    def median(name: str) -> float:
        return round(statistics.median(batch[name] for batch in others), 4)

    return {
        "groups": groups,
        "batches": 1 + len(others),
        "staged_rows": opening["rows"],
        "partial_seconds": median("partial"),
        "copy_seconds": median("copy"),
        "merge_seconds": median("merge"),
        "opening_merge_seconds": round(opening["merge"], 4),
        "closing_merge_seconds": round(closing_s, 4),
        "merge_log_bytes": round(median("log_bytes")),
    }


def _events_of_tasks(events: int, groups: int) -> list[TaskEvents]:
    """Make a batch of events, in no order, that touch so many groups, by task."""
    source = np.random.default_rng(7)
    group = source.permutation(np.arange(events) % groups)
    start_us = int(START.timestamp()) * _SECOND_US
    within_us = source.integers(0, _WINDOW_S * _SECOND_US, size=events)
    times_us = start_us + group % _WINDOWS * _WINDOW_S * _SECOND_US + within_us
    users = group // _WINDOWS
    return [
        (times, pa.table({"user_id": part}))
        for times, part in zip(
            np.array_split(times_us, _TASKS), np.array_split(users, _TASKS), strict=True
        )
    ]


if __name__ == "__main__":
    main()
