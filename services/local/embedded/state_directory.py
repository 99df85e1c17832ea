"""The directory where Tallyweir keeps jars, caches and the embedded servers' data.

It is the one that ``TALLYWEIR_STATE_DIR`` names; otherwise ``.tallyweir`` next to the
launcher of a checkout, or ``tallyweir`` in the user's data directory
(``XDG_DATA_HOME``) where pip has installed Tallyweir.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tallyweir.sinks.protocol.errors import ConfigurationError

#: The folder of ``services`` and the packages beside it: the repository in a checkout.
ROOT = Path(__file__).resolve().parents[3]
STATE_DIRECTORY_VARIABLE = "TALLYWEIR_STATE_DIR"

_SEPARATORS = ',:\\"\n'
_PRIVATE = 0o700


def state_directory() -> Path:
    """Return the absolute path of the state directory; made when missing.

    A directory that this makes is private to the user. An existing directory that
    ``TALLYWEIR_STATE_DIR`` names keeps its permissions.

    Raises:
        ConfigurationError: ``STATE_DIRECTORY``: it cannot be written, or its path has
            a character that separates paths in settings of Java, Kafka or Spark.
    """
    given = os.environ.get(STATE_DIRECTORY_VARIABLE)
    directory = Path(given).expanduser().absolute() if given else _own_directory()
    if set(_SEPARATORS) & set(str(directory)):
        raise _unusable(directory, 'its path has one of , : \\ " or a line break')
    is_own = not given or not directory.exists()
    try:
        directory.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, str(error.strerror)) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _unusable(directory, "it is not writable")
    if is_own and directory.stat().st_mode & 0o077:
        # A former version made it readable by all users. If another user owns it, leave
        # it.
        with suppress(PermissionError):
            directory.chmod(_PRIVATE)
    return directory


def is_checkout() -> bool:
    """Tell whether this copy is a checkout of the repository, or installed by pip."""
    return (ROOT / "pyproject.toml").is_file()


def _own_directory() -> Path:
    if is_checkout():
        return ROOT / ".tallyweir"
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The specification ignores a relative path.
    return (data if data.is_absolute() else Path.home() / ".local/share") / "tallyweir"


def _unusable(directory: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        "STATE_DIRECTORY",
        saw=f"The state directory {directory} cannot be used: {what}.",
        why="Tallyweir keeps jars, logs, scratch files and the embedded servers' "
        "data there.",
        fix=f"Set {STATE_DIRECTORY_VARIABLE} to a writable directory.",
    )


def share_fetched(other: Path) -> None:
    """Let another state directory use the files fetched or prepared for this one.

    These files never change, so sharing them saves a download.
    """
    for name in ("jars", "datasets", "class_archive", "notebook"):
        shared = state_directory() / name
        shared.mkdir(parents=True, exist_ok=True)
        (other / name).symlink_to(shared)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Lock ``directory`` against other Tallyweir processes; wait for the lock.

    The kernel releases the lock however the holder dies.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def empty_directory(directory: Path) -> None:
    """Delete all that is in a directory which ``exclusive`` has locked.

    No process may use the files any more.
    """
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "lock":
            # A process that waits for the lock waits for this very file.
            entry.unlink()


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file so that a reader sees the old or the new text, never a part."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
