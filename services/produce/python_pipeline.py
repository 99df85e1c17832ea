"""Describe Python pipeline files for processes without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sinks.protocol.errors import ConfigurationError

PYTHON_ENDING = ".py"

#: The imports of a pipeline file take seconds, not minutes.
_TIMEOUT_S = 120.0


def describe_python_pipeline(path: Path) -> Mapping[str, Any]:
    """Return a Python pipeline file as the keys that a YAML file would have.

    It runs in a separate process of ``spark_jobs``, which services do not import.

    Raises:
        ConfigurationError: ``PIPELINE_FILE_UNREADABLE``, with the file's own error.
    """
    arguments = [sys.executable, "-m", "spark_jobs.describe_pipeline", str(path)]
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _unreadable(path, f"it still runs after {_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it ended without a word"]
        shown = " ".join(" ".join(lines[:4]).split()) if done.returncode > 1 else ""
        raise _unreadable(path, shown or lines[-1])
    description: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return description


def _unreadable(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        "PIPELINE_FILE_UNREADABLE",
        saw=f"{path}: {what}.",
        why="What a Python pipeline is called and reads is known by running its file.",
        fix="Correct the file, or give the pipeline's name where one will do.",
    )
