"""Real processes are sampled from outside, parents and children told apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallyweir.services.operate.profiling.driver_samples import sample_python
from tallyweir.sinks.protocol.errors import ConfigurationError

_PROGRAM = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
def burn_as_child():
    print("ready", flush=True)
    while sys.stdin is not None: sum(range(1000))
def burn_as_parent():
    while sys.stdin is not None: sum(range(1000))
if sys.argv[1:]:
    burn_as_child()
child = subprocess.Popen([sys.executable, __file__, "child"])
try:
    burn_as_parent()
finally:
    child.kill()
"""


def test_functions_of_a_process_and_of_its_children_are_found(tmp_path: Path) -> None:
    """By name, each below who it was."""
    file = tmp_path / "burning.py"
    file.write_text(_PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(file)], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            found = sample_python(process.pid, 1, tmp_path)
        except ConfigurationError as error:
            if "ermission" in error.saw:
                pytest.skip("this user may not look into its processes")
            raise
        finally:
            # It ends its child then.
            process.terminate()
    tops = {(stack[0], stack[-1].split(" ")[0]) for stack in found}
    assert {("driver", "burn_as_parent"), ("Python workers", "burn_as_child")} <= tops


def test_a_process_that_is_gone_is_told_in_a_line(tmp_path: Path) -> None:
    """And not by the profiler's own stack."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with pytest.raises(ConfigurationError, match="PROFILER_REFUSED") as raised:
        sample_python(process.pid, 1, tmp_path)
    assert "backtrace" not in raised.value.saw
