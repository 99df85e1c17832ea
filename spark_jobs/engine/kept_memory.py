"""Save work for each batch: keep freed memory, and exempt lasting objects from GC.

Each column of a batch takes several megabytes. The C library returns such memory to the
system as soon as it is freed. The kernel must then provide every page of the next
batch's columns again, filled with zeros: a third of a task's processor time
(``docs/benchmarks.md``).
"""

from __future__ import annotations

import ctypes
import gc

#: The process returns freed memory beyond this; a task of the usual size takes less.
KEPT_BYTES = 256 * 1024 * 1024

#: Names of the C library's ``malloc.h``.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def keep_freed_memory() -> None:
    """Make this process and its forks keep freed memory, up to a bound.

    One pool serves all threads. By default the library gives each thread its own pool
    and tries not to share it: only the thread that freed memory then reuses it, and a
    driver grew for a quarter of an hour.

    Only the GNU C library has this setting; with other libraries this changes nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # The library always returns separately mapped blocks, so usual sizes must not
        # be mapped separately.
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def leave_lasting_objects() -> None:
    """Make Python's garbage collector ignore all objects that are alive now.

    These are some hundred thousand objects of libraries, which live as long as the
    process. Each full collection would visit them all, for tens of milliseconds in
    which no thread runs, and a forked process would copy their pages. Call this again
    when many of them have been replaced: it first collects the ignored objects too.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
