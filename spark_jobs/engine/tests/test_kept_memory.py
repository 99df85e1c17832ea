"""What a batch has freed serves the next one, and what lasts is left alone."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from tallyweir.spark_jobs.engine.kept_memory import leave_lasting_objects

#: Makes some columns, frees them, makes them again; prints how often the kernel had to
#: hand out a page in one such round, once memory has been taken for the first.
_ROUNDS = """
import resource, sys
from tallyweir.spark_jobs.engine.kept_memory import keep_freed_memory

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

#: Lets one thread after the other make some columns and free them, each of which lives
#: on; prints by how many bytes the process has grown.
_THREADS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from tallyweir.spark_jobs.engine.kept_memory import keep_freed_memory

def resident_pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

def make_and_free():
    columns = [b"x" * 8_000_000 for _ in range(6)]

keep_freed_memory()
threads = [ThreadPoolExecutor(1) for _ in range(8)]
threads[0].submit(make_and_free).result()
before = resident_pages()
for thread in threads:
    thread.submit(make_and_free).result()
print((resident_pages() - before) * 4096)
"""

_PAGE_BYTES = 4096
_COLUMN_PAGES = 8_000_000 // _PAGE_BYTES


_gnu_only = pytest.mark.skipif(
    sys.platform != "linux", reason="of the GNU C library alone"
)


def _printed(program: str, *arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


@_gnu_only
def test_what_one_thread_has_freed_another_one_uses() -> None:
    """With a pool for each thread it is 48 MB more for each of seven."""
    assert _printed(_THREADS) < 48_000_000


@_gnu_only
def test_columns_are_made_in_the_memory_of_those_before_them() -> None:
    """Left alone, the library gives most of it back, and gets it page by page again."""
    assert _printed(_ROUNDS, "given back") > _COLUMN_PAGES
    assert _printed(_ROUNDS, "kept") < _COLUMN_PAGES // 10


class _Cycle:
    """Something that only the collector can take away."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def _nothing_left_alone() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_nothing_left_alone")
def test_what_lasts_is_not_looked_at_until_it_is_asked_for_once_more() -> None:
    """What a driver has replaced when it starts over does not stay for ever."""
    lost, lasting = _Cycle(), _Cycle()
    lost_seen, lasting_seen = weakref.ref(lost), weakref.ref(lasting)
    del lost
    leave_lasting_objects()
    assert lost_seen() is None
    del lasting
    gc.collect()
    assert lasting_seen() is not None
    leave_lasting_objects()
    assert lasting_seen() is None
