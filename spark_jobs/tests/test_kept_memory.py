"""What a batch has freed serves the next one, without the kernel's help."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Makes some columns, frees them, makes them again; prints how often the kernel had to
#: hand out a page in one such round, once memory has been taken for the first.
_ROUNDS = """
import resource, sys
from spark_jobs.kept_memory import keep_freed_memory

def faults_of_a_round():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    columns = [b"x" * 8_000_000 for _ in range(6)]
    del columns
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "kept":
    keep_freed_memory()
faults_of_a_round()
print(min(faults_of_a_round() for _ in range(3)))
"""

_PAGE_BYTES = 4096
_COLUMN_PAGES = 8_000_000 // _PAGE_BYTES


def _faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _ROUNDS, how], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="of the GNU C library alone")
def test_columns_are_made_in_the_memory_of_those_before_them() -> None:
    """Left alone, the library gives most of it back, and gets it page by page again."""
    assert _faults("given back") > _COLUMN_PAGES
    assert _faults("kept") < _COLUMN_PAGES // 10
