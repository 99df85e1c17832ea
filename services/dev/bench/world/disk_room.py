"""Checks that a run's data fits on the disk, before minutes of measuring."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tallyweir.sinks.protocol.errors import ConfigurationError

_GIB = 1 << 30


def free_bytes(directory: Path) -> int:
    """Return the free bytes of a directory's disk."""
    return shutil.disk_usage(directory).free


def check_room(free: int, needs: Mapping[str, int], *, fix: str) -> None:
    """Refuse a run whose data does not fit on the disk.

    Args:
        free: Bytes that are free.
        needs: Bytes that the run needs, by purpose.
        fix: Tells the operator how to need less.

    Raises:
        ConfigurationError: ``BENCH_ROOM``.
    """
    needed = sum(needs.values())
    if needed <= free:
        return
    parts = ", ".join(f"{_in_gib(size)} for {name}" for name, size in needs.items())
    raise ConfigurationError(
        "BENCH_ROOM",
        saw=f"{_in_gib(free)} of the disk are free; the run needs {_in_gib(needed)}: "
        f"{parts}.",
        why="A full disk would stop the run halfway, and everything else that uses "
        "the disk.",
        fix=fix,
    )


def _in_gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
