"""Keeps what lasts from being worked on for each batch: freed memory, and objects.

Columns of a batch are some megabytes each. The C library gives such memory back to the
system as soon as it is freed, and the kernel then hands out every page of the next
batch's columns anew, filled with zeros: a third of a task's processor time
(``docs/benchmarks.md``).
"""

from __future__ import annotations

import ctypes
import gc

#: More than this is given back; a task of the usual size takes less.
KEPT_BYTES = 256 * 1024 * 1024

#: Names of the C library's ``malloc.h``.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def keep_freed_memory() -> None:
    """Have this process, and those that it forks, keep what they free up to a bound.

    One pool has it for all threads. By itself the library gives each thread one, which
    it tries not to share: what a thread has freed then waits for this very thread, and
    a driver grew for a quarter of an hour.

    Only the GNU C library can be told so; with any other all stays as it was.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # What is mapped for itself is always given back, so nothing usual may be.
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def leave_lasting_objects() -> None:
    """Have Python's collector look no more at what is alive now.

    It is some hundred thousand objects of libraries, which live as long as the process.
    Each full collection would visit them all, for tens of milliseconds in which no
    thread does anything, and a process that is forked would copy their pages.
    To be called again when much of it has been replaced: what was left before is looked
    at once more.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
