"""Makes the virtual environment that everything else runs in.

Only this module runs on the machine's own Python, so it uses only the standard library.
The launcher runs it as a script when ``.venv`` lacks the current lock.

Invariants:
    - ``<venv>/<lock>`` is a copy of a lock only while everything in it is installed: it
      is removed before pip starts and written after pip has succeeded. A set-up that
      was killed half-way leaves no copy, and the next start makes the environment
      again.
    - Two starts at once do the work once: the kernel's file lock (on the run-time lock,
      which always exists) ends with its holder, however the holder dies.
"""

from __future__ import annotations

import fcntl
import filecmp
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
RUNTIME_LOCK = "requirements.lock"
DEVELOPMENT_LOCK = "requirements-dev.lock"
JAVA_LOCK = "requirements-java.lock"
PEERS_LOCK = "requirements-peers.lock"
NOTEBOOK_LOCK = "requirements-notebook.lock"

_BUILD_LOCK = "requirements-build.lock"
_LINES_SHOWN = 15
_PROGRESS_INTERVAL_S = 5.0


class SetUpError(Exception):
    """The environment could not be made; printed like every other product error."""

    exit_code = 78

    def __init__(self, code: str, *, saw: str, why: str, fix: str) -> None:
        super().__init__(f"{code}: {saw}")
        self.code = code
        self.saw = saw
        self.why = why
        self.fix = fix


def is_installed(lock: str, *, root: Path = ROOT, venv: Path | None = None) -> bool:
    """Return whether the environment (see ``install``) has the packages of ``lock``.

    It has if the stamp says so, and no package of the lock has been removed since.
    """
    venv = venv or root / ".venv"
    stamp = venv / lock
    if not stamp.exists() or not filecmp.cmp(root / lock, stamp, shallow=False):
        return False
    # Skip pins with a marker: pip decides whether they apply.
    pins = re.findall(r"^([\w.-]+)[^;\n]*==[^;\n]*$", stamp.read_text(), re.MULTILINE)
    there = venv.glob("lib/python*/site-packages/*.dist-info")
    return {_plain(pin) for pin in pins} <= {
        _plain(path.name.partition("-")[0]) for path in there
    }


def _plain(name: str) -> str:
    """Normalise a package's name as pip does."""
    return re.sub(r"[-_.]+", "-", name).lower()


def install(lock: str, *, root: Path = ROOT, venv: Path | None = None) -> None:
    """Bring an environment up to date with ``lock``; do nothing if it is.

    Args:
        lock: Name of a lock file at the root of the repository.
        root: The repository.
        venv: An environment that holds this lock alone, for packages that do not go
            with ours; None for ``.venv``, which begins with the run-time lock.

    It replaces a link in the environment's place, and does not touch the target.

    Raises:
        SetUpError: This Python cannot make environments, or pip failed.

    Crash:
        After a crash before the stamp is written, the next call repairs the
        environment.
    """
    with _only_one(root / RUNTIME_LOCK):
        if is_installed(lock, root=root, venv=venv):
            return
        started = time.monotonic()
        first_lock = RUNTIME_LOCK if venv is None else lock
        venv = venv or root / ".venv"
        if venv.is_symlink() or not (venv / first_lock).exists():
            _create(venv)
        stamp = venv / lock
        stamp.unlink(missing_ok=True)
        if lock == RUNTIME_LOCK:
            _pip_install(root / _BUILD_LOCK, venv)
        _pip_install(root / lock, venv)
        # Rename it into place: a copy cut short must not count as the whole lock.
        shutil.copyfile(root / lock, stamp.with_suffix(".new"))
        stamp.with_suffix(".new").replace(stamp)
        _report(f"{lock} is installed, {time.monotonic() - started:.0f} s")


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    with path.open() as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _report("another start is setting up; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _create(venv: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not os.access(venv.parent, os.W_OK | os.X_OK):
        raise SetUpError(
            "CLONE_READ_ONLY",
            saw=f"{venv.parent} is not writable.",
            why="Tallyweir keeps its libraries in its own environment there",
            fix="start Tallyweir once while the directory is writable; after that it "
            "may be read-only, if TALLYWEIR_STATE_DIR names another directory",
        )
    if venv.is_symlink():
        _report(
            f"{venv} is a link to {venv.readlink()}; Tallyweir does not touch its "
            "target"
        )
        venv.unlink()
    _report(f"first set-up: making {venv} with Python {version}")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise SetUpError(
            "VENV_MISSING",
            saw=f"{sys.executable} -m venv failed: "
            + last_lines(made.stdout + made.stderr, 3),
            why="Tallyweir keeps its libraries in its own environment",
            fix=f"on Debian and Ubuntu: apt-get install python{version}-venv; "
            "elsewhere install a Python that has venv and ensurepip",
        )


def _pip_install(lock: Path, venv: Path) -> None:
    pins = len(re.findall(r"^\S+==", lock.read_text(), re.MULTILINE))
    _report(f"installing {lock.name}: up to {pins} packages, by hash")
    output = venv / "pip.log"
    with (
        output.open("w") as log,
        subprocess.Popen(
            [
                *(str(venv / "bin" / "python"), "-I", "-m", "pip", "install"),
                *("--disable-pip-version-check", "--no-input", "--progress-bar=off"),
                *("--require-hashes", "--no-build-isolation", "--use-pep517"),
                *("-r", str(lock)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as pip,
    ):
        assert pip.stdout is not None
        _show_progress(pip.stdout, log, pins)
    if pip.returncode != 0:
        raise SetUpError(
            "PACKAGES_NOT_INSTALLED",
            saw=last_lines(output.read_text()),
            why="Tallyweir needs exactly the packages of its lock",
            fix=f"check that pip can reach a package index, then start again; "
            f"pip's whole output is in {output}",
        )


def _show_progress(lines: IO[str], log: IO[str], pins: int) -> None:
    seen = 0
    shown = time.monotonic()
    for line in lines:
        log.write(line)
        if line.startswith("Collecting "):
            seen += 1
        if line.startswith(("Installing collected", "Successfully")):
            continue
        if time.monotonic() - shown >= _PROGRESS_INTERVAL_S:
            shown = time.monotonic()
            name = line.strip().split(" (")[0][:60]
            _report(f"{seen} of {pins}: {name}")


def last_lines(text: str, count: int = _LINES_SHOWN) -> str:
    """Return the end of what a program has printed, for an error."""
    return "\n".join(text.strip().splitlines()[-count:])


def _report(line: str) -> None:
    sys.stderr.write(f"tallyweir: {line}\n")
    sys.stderr.flush()


def main() -> int:
    """Install the run-time lock; print four lines and fail if that is impossible."""
    try:
        install(RUNTIME_LOCK)
    except SetUpError as error:
        saw = error.saw.replace("\n", "\n       ")
        sys.stderr.write(
            f"{error.code}\n  saw: {saw}\n  why: {error.why}\n  fix: {error.fix}\n"
        )
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
