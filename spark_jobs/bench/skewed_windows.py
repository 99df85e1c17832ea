"""What a hot key costs windows of each kind: even keys and a hot one, in turns.

``python -m services.dev.bench.skewed_keys`` runs it. A batch of even keys and one in
which a key has nine tenths of the events take turns, so both have the same machine.

Prints one line of JSON for each kind of window.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa

from sinks.postgres.outputs.window_table import WindowTable
from sinks.postgres.schema.migrations import migrate
from sinks.postgres.server.branch_names import HOME
from sinks.settings import HOME_DSN_VARIABLE, read_setting
from spark_jobs.bench.window_batches import START, TaskEvents, WindowBatches
from spark_jobs.pipeline.aggregate import parse_aggregate
from spark_jobs.pipeline.window import WindowOutput
from spark_jobs.pipeline.window_kinds import Fixed, Session, Sliding, WindowKind
from spark_jobs.source import event_columns as named
from spark_jobs.source.event_columns import argument_column
from spark_jobs.tables.window_layout import window_table

#: Of pipelines that the home has not registered.
_FIRST_NUMBER = 2_001
_TASKS = 4
_KEYS = 10_000
#: Of the hottest key's events, by sort of batch.
_SHARES = {"even": 0.0, "hot": 0.9}
#: Batches of each sort that are measured, behind one that opens the windows.
_ROUNDS = 5
_SECOND_US = 1_000_000
_SEED = 20_261_125


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewedCase:
    """Windows of one kind.

    Attributes:
        windows: The kind.
        aggregate: Of the events' ``value``.
        span: Within which a batch's events happen.
        each: Windows that an event is in.
        events_max: Of a batch.
    """

    windows: WindowKind
    aggregate: str
    span: timedelta
    each: int = 1
    events_max: int = 1_000_000


_MINUTE = timedelta(minutes=1)
CASES: Mapping[str, SkewedCase] = {
    "fixed, sum": SkewedCase(
        windows=Fixed(size=_MINUTE), aggregate="sum(value)", span=_MINUTE
    ),
    "sliding, sum": SkewedCase(
        windows=Sliding(size=_MINUTE, every=_MINUTE / 4),
        aggregate="sum(value)",
        span=_MINUTE,
        each=4,
    ),
    "fixed, last": SkewedCase(
        windows=Fixed(size=_MINUTE), aggregate="last(value)", span=_MINUTE
    ),
    "fixed, distinct": SkewedCase(
        windows=Fixed(size=_MINUTE),
        aggregate="approx_count_distinct(value)",
        span=_MINUTE,
    ),
    "fixed, percentile": SkewedCase(
        windows=Fixed(size=_MINUTE),
        aggregate="approx_percentile(value, 0.95)",
        span=_MINUTE,
    ),
    "sessions, dense": SkewedCase(
        windows=Session(gap=_MINUTE / 2), aggregate="sum(value)", span=10 * _MINUTE
    ),
    # Hardly two events of a key are close enough, so that a hot key has thousands of
    # sessions open at a time.
    "sessions, sparse": SkewedCase(
        windows=Session(gap=timedelta(seconds=1)),
        aggregate="sum(value)",
        span=timedelta(days=30),
        events_max=10_000,
    ),
}


def main() -> None:
    """Measure batches of so many events of each kind."""
    dsn = read_setting(os.environ, HOME_DSN_VARIABLE) or ""
    migrate(dsn)
    events = int(sys.argv[1])
    for number, (name, case) in enumerate(CASES.items()):
        figures = {"case": name, **measure_skew(dsn, number, case, events)}
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()


def measure_skew(
    dsn: str, number: int, case: SkewedCase, events: int
) -> dict[str, object]:
    """Run batches of even and of skewed keys in turns.

    Args:
        dsn: Of the home.
        number: Of the case, for tables of its own.
        case: The kind of windows.
        events: Of each batch.

    Returns:
        ``even`` and ``hot``: medians of a batch, and its ``table``; ``ratio``: events a
        second of the hot ones to those of the even ones; ``counted``: what each table
        must count.
    """
    events = min(events, case.events_max)
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in _SHARES}
    tables = {name: f"skewed_{number}_{name}" for name in _SHARES}
    tasks = {name: skewed_tasks(case, events, share) for name, share in _SHARES.items()}
    with ExitStack() as opened:
        batches = {}
        for place, (name, table) in enumerate(tables.items()):
            own = _FIRST_NUMBER + 2 * number + place
            of_one = WindowBatches(dsn, own, skewed_output(case, table))
            opened.callback(of_one.end)
            batches[name] = of_one
        for _ in range(1 + _ROUNDS):
            for name, of_one in batches.items():
                rounds[name].append(of_one.run(tasks[name]))
    even, hot = (_median(found[1:]) for found in rounds.values())
    return {
        "even": {**even, "table": tables["even"]},
        "hot": {**hot, "table": tables["hot"]},
        "ratio": round(even["seconds"] / hot["seconds"], 2),
        "counted": (1 + _ROUNDS) * events * case.each,
    }


def skewed_output(case: SkewedCase, table: str) -> WindowTable:
    """Describe windows of a case's kind, by the key of the events."""
    output = WindowOutput(
        table=table,
        windows=case.windows,
        by=("key",),
        aggregates=(
            parse_aggregate("events", "count(*)"),
            parse_aggregate("found", case.aggregate),
        ),
        # None is closed, and each batch touches what those before it have opened.
        allowed_lateness=timedelta(days=1_000),
    )
    types = {"key": "bigint", argument_column(0, 1): "bigint"}
    return window_table(0, output, "output_0", types, (HOME,))


def skewed_tasks(
    case: SkewedCase, events: int, hot_share: float
) -> Sequence[TaskEvents]:
    """Make a batch of events; Kafka gives each task its share, whatever their keys."""
    random = np.random.default_rng(_SEED)
    keys = random.integers(1, _KEYS, events)
    keys[random.random(events) < hot_share] = 0
    start_us = int(START.timestamp()) * _SECOND_US
    span_us = case.span // timedelta(microseconds=1)
    times_us = start_us + random.integers(0, span_us, events)
    values = random.integers(0, 1_000, events)
    positions = np.arange(events)
    return [
        (
            times_us[own],
            pa.table(
                {
                    "key": keys[own],
                    argument_column(0, 1): values[own],
                    named.EVENT_TIME: pa.array(times_us[own]).cast(
                        pa.timestamp("us", "UTC")
                    ),
                    named.PLACE: np.full(len(own), task),
                    named.OFFSET: own,
                }
            ),
        )
        for task, own in enumerate(np.array_split(positions, _TASKS))
    ]


def _median(batches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    steps = ("partial", "copy", "merge")
    found = {
        name: round(statistics.median(batch[name] for batch in batches), 4)
        for name in (*steps, "rows")
    }
    seconds = statistics.median(sum(batch[step] for step in steps) for batch in batches)
    return {**found, "seconds": round(seconds, 4)}


if __name__ == "__main__":
    main()
