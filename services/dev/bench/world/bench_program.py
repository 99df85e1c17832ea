"""Runs a program for a benchmark, in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence

from tallyweir.services.dev.bench.world.bench_world import incomplete_run

_COMPLAINT_LENGTH = 2_000


def run_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float,
    task: Mapping[str, object] | None = None,
) -> list[str]:
    """Run a program to its end; return the lines that it prints.

    Args:
        command: The program and its arguments.
        environment: The program's whole environment.
        timeout_s: How long the program may take.
        task: Written to the program's standard input, as JSON.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: the program failed, or took too long.
    """
    try:
        done = subprocess.run(
            command,
            input=json.dumps(task),
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise incomplete_run(
            f"{_name(command)} did not end in {late.timeout:.0f} s.",
            fix="Measure fewer events, or on a quieter machine.",
        ) from late
    if done.returncode:
        complaint = done.stderr[-_COMPLAINT_LENGTH:]
        raise incomplete_run(
            f"{_name(command)} ended with code {done.returncode}: {complaint}",
            fix="Correct the error that it reports.",
        )
    return done.stdout.splitlines()


def _name(command: Sequence[str]) -> str:
    return " ".join(command)[:200]
