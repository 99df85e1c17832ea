"""A program of a benchmark: gets a task as JSON, and gives its figures as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from services.bench.bench_world import incomplete_run

_COMPLAINT_LENGTH = 2_000


def run_program(
    module: str,
    task: Mapping[str, object],
    environment: Mapping[str, str],
    *,
    timeout_s: float,
) -> dict[str, Any]:
    """Run a module in a process of its own; return what its last line says.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: it failed, or took too long.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module],
            input=json.dumps(task),
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise incomplete_run(
            f"{module} did not end in {late.timeout:.0f} s.",
            fix="Measure fewer events, or on a quieter machine.",
        ) from late
    if done.returncode:
        complaint = done.stderr[-_COMPLAINT_LENGTH:]
        raise incomplete_run(
            f"{module} ended with code {done.returncode}: {complaint}",
            fix="Correct what it complains of.",
        )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
