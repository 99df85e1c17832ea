"""A batch of windows in halves, by the number of groups that it touches.

The work is the product's own, run by ``spark_jobs.bench.touched_groups`` without
Spark and Kafka: what a task makes of its events, and what a publish transaction
makes of that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psycopg import sql

from services.dev.bench.bench_world import WINDOWS, drop_table, incomplete_run
from services.dev.bench.rates import wrong_result
from services.process.endpoints import Endpoints, child_environment
from sinks.postgres.server.connection import connect

#: What a batch touches; the greatest number gives each event a group of its own.
GROUPS = (100, 1_000, 10_000, 100_000, 1_000_000)
#: Of a batch.
EVENTS = 1_000_000

_MICRO = 1_000_000
_COMPLAINT_LENGTH = 2_000


def measure_touched_groups(
    endpoints: Endpoints, *, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure both halves of a batch for each number of groups.

    Raises:
        FatalError: The work failed, or its windows do not count each event once.
    """
    command = [
        sys.executable,
        "-m",
        "spark_jobs.bench.touched_groups",
        str(WINDOWS.file),
    ]
    worker = subprocess.Popen(
        [*command, str(EVENTS), *map(str, GROUPS)],
        env=child_environment(endpoints),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with worker:
        assert worker.stdout is not None, "it is a pipe"
        assert worker.stderr is not None, "it is a pipe"
        measured = []
        for line in worker.stdout:
            seconds = json.loads(line)
            _check_counts(endpoints.home_dsn, seconds)
            measured.append(by_unit(seconds))
            say(f"touched groups: {measured[-1]}")
        complaint = worker.stderr.read()
    if worker.returncode:
        raise incomplete_run(
            f"The work ended with code {worker.returncode}: "
            f"{complaint[-_COMPLAINT_LENGTH:]}",
            fix="Correct what it complains of.",
        )
    return measured


def by_unit(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Put what was measured in relation to a batch's events, rows and groups."""
    groups, rows = measured["groups"], measured["staged_rows"]
    kept = ("partial_seconds", "copy_seconds", "merge_seconds", "opening_merge_seconds")
    return {
        "groups": groups,
        "staged_rows": rows,
        **{name: measured[name] for name in (*kept, "closing_merge_seconds")},
        "partial_us_per_event": _per(measured["partial_seconds"], EVENTS),
        "copy_us_per_row": _per(measured["copy_seconds"], rows),
        "merge_us_per_group": _per(measured["merge_seconds"], groups),
        "merge_log_bytes_per_group": round(measured["merge_log_bytes"] / groups),
    }


def touched_groups_table(
    measured: Sequence[Mapping[str, Any]],
) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Return what people read: the seconds of a batch, half by half."""
    columns = (
        "groups",
        "staged rows",
        "partials s",
        "copy s",
        "merge s",
        "first merge s",
        "last merge s",
        "partials us/event",
        "merge us/group",
        "merge log bytes/group",
    )
    rows = [
        (
            f"{one['groups']:,}",
            f"{one['staged_rows']:,}",
            one["partial_seconds"],
            one["copy_seconds"],
            one["merge_seconds"],
            one["opening_merge_seconds"],
            one["closing_merge_seconds"],
            one["partial_us_per_event"],
            one["merge_us_per_group"],
            one["merge_log_bytes_per_group"],
        )
        for one in measured
    ]
    return columns, rows


def _per(seconds: float, units: int) -> float:
    return round(seconds * _MICRO / units, 3)


def _check_counts(dsn: str, measured: Mapping[str, Any]) -> None:
    """Hold the windows against the events, then make room for the next size."""
    table = measured["table"]
    with connect(dsn, application_name="bench") as connection:
        ((groups, counted),) = connection.execute(
            sql.SQL("SELECT count(*), sum(views) FROM {} WHERE final").format(
                sql.Identifier(table)
            )
        ).fetchall()
    if (groups, counted) != (measured["groups"], measured["batches"] * EVENTS):
        raise wrong_result(
            f"{groups} final windows count {counted} events; they should be "
            f"{measured['groups']}, and count {measured['batches']} times {EVENTS}."
        )
    drop_table(dsn, table)
