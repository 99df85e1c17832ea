"""Samples a driver's Python and its Python workers from outside, by py-spy.

A hundred times a second, a sample stops a process for well under a millisecond.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tallyweir.services.operate.profiling.flame_graph import Stack, fold
from tallyweir.sinks.protocol.errors import ConfigurationError

_RATE = 100
#: Time for py-spy to start, and to write the samples.
_GRACE_S = 60
_PROCESS = re.compile(r"process (?P<id>[0-9]+):")


def sample_python(process_id: int, seconds: int, directory: Path) -> Counter[Stack]:
    """Sample a driver and all its Python subprocesses, including new ones.

    Args:
        process_id: Process id of the driver.
        seconds: How long to sample; the call takes as long.
        directory: A directory for a temporary file.

    Returns:
        The samples of each working stack; the outermost frame names the driver or its
        workers.

    Raises:
        ConfigurationError: ``PROFILER_MISSING`` or ``PROFILER_REFUSED``.
    """
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise ConfigurationError(
            "PROFILER_MISSING",
            saw="py-spy is not installed.",
            why="py-spy samples Python processes.",
            fix="Install the packages of requirements-spark.lock, which include it.",
        )
    file = directory / "python.folded"
    done = subprocess.run(
        [
            *(program, "record", "--pid", str(process_id), "--subprocesses"),
            *("--format", "raw", "--rate", str(_RATE), "--duration", str(seconds)),
            # One frame for each function, not for each line.
            *("--function", "--output", str(file)),
        ],
        capture_output=True,
        text=True,
        timeout=seconds + _GRACE_S,
        check=False,
    )
    if done.returncode or not file.exists():
        told = " ".join((done.stderr or done.stdout).split())
        told = told.partition("Stack backtrace")[0].strip()[-300:]
        raise ConfigurationError(
            "PROFILER_REFUSED",
            saw=f"py-spy could not sample process {process_id}: {told}",
            why="The process has ended, or this user may not read its memory: only "
            "its own user, where the kernel allows it, or one with CAP_SYS_PTRACE "
            "may.",
            fix="Run this command as the driver's user; if kernel.yama.ptrace_scope "
            "is 1 or more, run it as root or with that capability.",
        )
    with file.open(encoding="utf-8", errors="replace") as lines:
        found = fold(lines)
    named: Counter[Stack] = Counter()
    for stack, samples in found.items():
        named[_named(stack, process_id)] += samples
    return named


def _named(stack: Stack, driver: int) -> Stack:
    """Replace the process id and command line in a stack by a name."""
    match = _PROCESS.match(stack[0])
    if match is None:
        return ("driver", *stack)
    who = "driver" if int(match["id"]) == driver else "Python workers"
    rest = stack[1:]
    # A child's stack begins with one such frame for each parent process.
    while rest and _PROCESS.match(rest[0]):
        rest, who = rest[1:], "Python workers"
    return (who, *rest)
