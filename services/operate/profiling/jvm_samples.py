"""Samples a driver's JVM by Java Flight Recorder, which comes with a JDK, not a JRE."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallyweir.services.operate.profiling.flame_graph import Stack

_TIMEOUT_S = 120
_DEPTH = 64


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
        printed = _run(
            [
                *(self._jfr, "print", "--json", "--events", "jdk.ExecutionSample"),
                *("--stack-depth", str(_DEPTH), str(self._file)),
            ]
        )
        return fold_samples(json.loads(printed))

    def _order(self, *words: str) -> None:
        told = _run([self._jcmd, str(self._process_id), *words])
        if "Started recording" not in told and "Stopped recording" not in told:
            raise ValueError(" ".join(told.split())[-200:])


def fold_samples(recording: Mapping[str, Any]) -> Counter[Stack]:
    """Count the stacks of a recording in JSON."""
    stacks: Counter[Stack] = Counter()
    for event in recording["recording"]["events"]:
        trace = event["values"].get("stackTrace")
        if trace is None:
            continue
        frames = [_name(frame["method"]) for frame in trace["frames"]]
        stacks["JVM", *reversed(frames)] += 1
    return stacks


def _name(method: Mapping[str, Any]) -> str:
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


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        what = getattr(error, "stderr", None) or str(error)
        raise ValueError(" ".join(str(what).split())[-200:]) from error
