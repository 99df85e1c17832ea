"""Finds a pipeline's driver on this host, and samples its Python and its JVM.

py-spy samples Python from outside: a hundred times a second, it stops a process for
well under a millisecond. Java Flight Recorder samples the JVM; it comes with a JDK, not
with a JRE.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tallyweir.services.operate.profiling.flame_graph import Stack, fold
from tallyweir.sinks.postgres.audit import PipelineSummary
from tallyweir.sinks.protocol.errors import ConfigurationError

#: Most that the clocks of host and database may differ by.
_CLOCK_SKEW_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDriver:
    """A driver that runs on this host.

    Attributes:
        epoch: Epoch of its claim.
        process_id: Process id of its Python process.
        jvm: Process id of its JVM; None if no JVM runs.
    """

    epoch: int
    process_id: int
    jvm: int | None


def find_driver(pipelines: Sequence[PipelineSummary], pipeline: str) -> FoundDriver:
    """Return the process that has the pipeline's newest claim.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``PROFILE_NO_DRIVER``, or
            ``PROFILE_OTHER_HOST``.
    """
    found = next((one for one in pipelines if one.pipeline == pipeline), None)
    if found is None:
        known = ", ".join(one.pipeline for one in pipelines) or "none"
        raise ConfigurationError(
            "PIPELINE_UNKNOWN",
            saw=f"The home database has no pipeline {pipeline}; it has: {known}.",
            why="The command finds the driver by its claim in the home database.",
            fix="Correct the name, or the home database.",
        )
    driver = found.driver
    if driver is None or not driver.is_connected:
        last = "" if driver is None else f"; the last one had epoch {driver.epoch}"
        raise _no_driver(f"No driver of {pipeline} is connected{last}.")
    if driver.host != socket.gethostname():
        raise ConfigurationError(
            "PROFILE_OTHER_HOST",
            saw=f"The driver of {pipeline} is process {driver.process_id} on "
            f"{driver.host}; this is {socket.gethostname()}.",
            why="A process can only be sampled on its own host or in its own "
            "container.",
            fix=f"Run tallyweir profile {pipeline} there.",
        )
    try:
        process = psutil.Process(driver.process_id)
        began = process.create_time()
        jvm = next((c.pid for c in process.children() if c.name() == "java"), None)
    except psutil.NoSuchProcess:
        raise _no_driver(f"This host has no process {driver.process_id}.") from None
    if began > driver.claimed_at.timestamp() + _CLOCK_SKEW_S:
        # The process id has since been reused.
        raise _no_driver(f"Process {driver.process_id} is younger than its claim.")
    return FoundDriver(epoch=driver.epoch, process_id=driver.process_id, jvm=jvm)


def _no_driver(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "PROFILE_NO_DRIVER",
        saw=saw,
        why="Only a running driver can be sampled.",
        fix="Start the driver; if it runs in a container, run this command in that "
        "container.",
    )


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
        named[_named_stack(stack, process_id)] += samples
    return named


def _named_stack(stack: Stack, driver: int) -> Stack:
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


_JVM_TIMEOUT_S = 120
_JVM_DEPTH = 64


class JvmRecording:
    """A recording of a JVM; creating the object starts it.

    Args:
        process_id: Process id of the JVM.
        directory: A directory for a temporary file; the JVM must be able to write
            there.

    Raises:
        ValueError: The tools are missing, or the JVM did not start the recording; the
            message says which. The rest of a profile can go on without it.
    """

    def __init__(self, process_id: int, directory: Path) -> None:
        self._process_id = process_id
        self._jcmd = _find_tool("jcmd", process_id)
        self._jfr = _find_tool("jfr", process_id)
        self._name = f"tallyweir-{directory.name}"
        self._file = directory / "jvm.jfr"
        self._order("JFR.start", f"name={self._name}", "settings=profile")

    def stop(self) -> Counter[Stack]:
        """End the recording, and return the samples of each working stack.

        Raises:
            ValueError: The JVM did not end the recording, or it cannot be read.
        """
        self._order("JFR.stop", f"name={self._name}", f"filename={self._file}")
        printed = _run_tool(
            [
                *(self._jfr, "print", "--json", "--events", "jdk.ExecutionSample"),
                *("--stack-depth", str(_JVM_DEPTH), str(self._file)),
            ]
        )
        return fold_samples(json.loads(printed))

    def _order(self, *words: str) -> None:
        told = _run_tool([self._jcmd, str(self._process_id), *words])
        if "Started recording" not in told and "Stopped recording" not in told:
            raise ValueError(" ".join(told.split())[-200:])


def fold_samples(recording: Mapping[str, Any]) -> Counter[Stack]:
    """Count the stacks of a recording in JSON."""
    stacks: Counter[Stack] = Counter()
    for event in recording["recording"]["events"]:
        trace = event["values"].get("stackTrace")
        if trace is None:
            continue
        frames = [_method_name(frame["method"]) for frame in trace["frames"]]
        stacks["JVM", *reversed(frames)] += 1
    return stacks


def _method_name(method: Mapping[str, Any]) -> str:
    return f"{method['type']['name'].replace('/', '.')}.{method['name']}"


def _find_tool(name: str, process_id: int) -> str:
    """Find a tool in the directory of the running JVM, or on the path."""
    try:
        beside = Path(f"/proc/{process_id}/exe").readlink().with_name(name)
    except OSError:
        beside = Path(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise ValueError(f"{name} is missing; a JDK has it, a JRE does not")
    return found


def _run_tool(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_JVM_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        what = getattr(error, "stderr", None) or str(error)
        raise ValueError(" ".join(str(what).split())[-200:]) from error
