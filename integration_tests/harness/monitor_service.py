"""The monitor as users start it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tallyweir.services.local.embedded.state_directory import ROOT

_TIMEOUT_S = 30.0


@contextmanager
def running_monitor(
    home_dsn: str, bootstrap: str, *arguments: str
) -> Iterator[httpx.Client]:
    """Serve in the block; gives what asks it. It must end well when it is told to."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "tallyweir.services.cli"),
            *("monitor", "--port", "0"),
            *arguments,
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "TALLYWEIR_KAFKA_BOOTSTRAP": bootstrap,
            "TALLYWEIR_HOME_DSN": home_dsn,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "monitor listens" in line, line + process.stderr.read()
        with httpx.Client(base_url=json.loads(line)["url"], timeout=_TIMEOUT_S) as page:
            yield page
    finally:
        process.terminate()
        process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0
