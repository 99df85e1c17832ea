"""Give Spark a directory for files that end with the driver's process."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from pathlib import Path

_LOCK_NAME = "in-use.lock"

#: The locks of this process. The kernel releases them when it ends, in whatever way.
_held: list[int] = []


def scratch_directory(parent: Path) -> Path:
    """Make a directory for this process, and delete those whose process is gone.

    Spark deletes its files when it ends, but a killed process cannot delete them. Its
    files would otherwise stay.

    Args:
        parent: The directory that holds the scratch directories of all processes.
    """
    parent.mkdir(parents=True, exist_ok=True)
    # Let in one process at a time; otherwise one could delete a directory that another
    # is about to lock.
    gate = _open(parent / _LOCK_NAME)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        for former in parent.iterdir():
            if former.is_dir() and _is_left(former):
                shutil.rmtree(former, ignore_errors=True)
        directory = parent / uuid.uuid4().hex
        directory.mkdir()
        lock = _open(directory / _LOCK_NAME)
        fcntl.flock(lock, fcntl.LOCK_EX)
        _held.append(lock)
    finally:
        os.close(gate)
    return directory


def _is_left(directory: Path) -> bool:
    lock = _open(directory / _LOCK_NAME)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
