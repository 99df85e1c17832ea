"""How the process of a driver ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import atexit, os, sys
from tallyweir.spark_jobs.__main__ import _end
atexit.register(os.abort)
sys.stderr.write("told")
_end(76)
"""


def test_a_driver_ends_with_its_code_whatever_aborts_an_interpreter_that_ends() -> None:
    """Arrow does, where one of its threads is at work; what was told is flushed."""
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=Path(__file__).parents[3],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (run.returncode, run.stderr) == (76, "told")
