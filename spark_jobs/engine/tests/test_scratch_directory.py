"""The files of a process that was killed are deleted; those of a living one stay."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tallyweir.spark_jobs.engine.spark_session import scratch_directory

_HOLD = """
import sys
from pathlib import Path
from tallyweir.spark_jobs.engine.spark_session import scratch_directory
directory = scratch_directory(Path(sys.argv[1]))
(directory / "shuffled").write_text("rows")
print(directory, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    """A living one keeps its own, whatever starts and ends beside it."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as killed:
        assert killed.stdout is not None
        theirs = Path(killed.stdout.readline().strip())
        first = scratch_directory(tmp_path)
        assert (theirs / "shuffled").read_text() == "rows"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        second = scratch_directory(tmp_path)
    assert not theirs.exists()
    assert first.is_dir()
    assert second.is_dir()
    assert first != second
