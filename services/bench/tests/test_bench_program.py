"""A program gets its task, and what it says last is what it has found."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.bench.bench_program import run_program
from sinks.protocol.errors import FatalError

_ECHO = "import json, sys; print('a word'); print(json.dumps(json.load(sys.stdin)))"
_COMPLAIN = "import sys; sys.exit('no room on the disk')"


def _program(folder: Path, text: str) -> dict[str, str]:
    (folder / "some_program.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


def test_the_last_line_of_a_program_is_its_figures(tmp_path: Path) -> None:
    """Whatever it prints before that is not."""
    environment = _program(tmp_path, _ECHO)
    task = {"do": "start", "size": 7}
    assert task == run_program("some_program", task, environment, timeout_s=60)


def test_a_program_that_fails_is_no_measurement(tmp_path: Path) -> None:
    """The error says what it complained of."""
    environment = _program(tmp_path, _COMPLAIN)
    with pytest.raises(FatalError) as raised:
        run_program("some_program", {}, environment, timeout_s=60)
    assert raised.value.code == "BENCH_INCOMPLETE"
    assert "no room on the disk" in raised.value.saw
