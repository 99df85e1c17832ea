"""A program of a benchmark gets its task, and what it prints is what it has found."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tallyweir.services.dev.bench.world.bench_world import run_program
from tallyweir.sinks.protocol.errors import FatalError

_ECHO = "import sys; print('a word'); print(sys.stdin.read())"
_COMPLAIN = "import sys; sys.exit('no room on the disk')"


def _command(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_program_reads_its_task_and_prints_its_figures() -> None:
    """Each line is given back as it was printed."""
    task = {"do": "start", "size": 7}
    lines = run_program(_command(_ECHO), {}, timeout_s=60, task=task)
    assert ["a word", json.dumps(task)] == lines


def test_a_program_that_fails_is_no_measurement() -> None:
    """The error says what it complained of; half a run has no rate."""
    with pytest.raises(FatalError, match="no room on the disk") as raised:
        run_program(_command(_COMPLAIN), os.environ, timeout_s=60)
    assert raised.value.code == "BENCH_INCOMPLETE"


def test_a_program_that_takes_too_long_is_no_measurement() -> None:
    """It is ended."""
    forever = _command("import threading; threading.Event().wait()")
    with pytest.raises(FatalError, match="did not end") as raised:
        run_program(forever, {}, timeout_s=0.5)
    assert raised.value.code == "BENCH_INCOMPLETE"
