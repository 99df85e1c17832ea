"""Where Tallyweir keeps what it may make again: jars, and the embedded servers' data.

``.tallyweir`` beside the launcher, or where ``TALLYWEIR_STATE_DIR`` says.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATE_DIRECTORY_VARIABLE = "TALLYWEIR_STATE_DIR"


def state_directory() -> Path:
    """The absolute path of the state directory, made when missing."""
    given = os.environ.get(STATE_DIRECTORY_VARIABLE)
    directory = Path(given).expanduser().absolute() if given else ROOT / ".tallyweir"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def share_fetched(other: Path) -> None:
    """Let another state directory use what was fetched or prepared for this one.

    That never changes, so sharing it spares a download.
    """
    for name in ("jars", "datasets", "class_archive", "notebook"):
        shared = state_directory() / name
        shared.mkdir(parents=True, exist_ok=True)
        (other / name).symlink_to(shared)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold ``directory`` against other Tallyweir processes; waits for its turn.

    The kernel gives the lock back however the holder dies.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file so that a reader sees the old text or the new, never a part."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
