"""Fetches the packages of an image's lock, and builds our own.

The packages are for the Python and the machine of the image.

An image is built without a network, so that it can hold only the packages of its lock.
pip checks every hash twice: here, and when the image installs the package.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.services.local.embedded.virtual_environment import (
    DEVELOPMENT_LOCK,
    install,
)
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

#: Python of the images' base, even if another version runs here.
PYTHON_VERSION = "3.11"

#: Tags of wheels that run on Debian 12, newest first.
_GLIBC = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
_OUTPUT_LINES_SHOWN = 10


def fetch_wheels(directory: Path, locks: tuple[str, ...]) -> None:
    """Fill a directory with the packages that the locks list, and with nothing else.

    Args:
        directory: Emptied first; pip's own cache saves the second download.
        locks: Names of lock files at the root of the repository.

    Raises:
        RetryableError: ``WHEELS_NOT_FETCHED``.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    machine = platform.machine()
    tags = [f"--platform={glibc}_{machine}" for glibc in _GLIBC]
    for lock in locks:
        failure = _failure_of_pip(
            "download",
            *("--require-hashes", f"--python-version={PYTHON_VERSION}"),
            *("--implementation=cp", *tags),
            *("-d", str(directory), "-r", str(ROOT / lock)),
        )
        if failure is not None:
            raise RetryableError(
                "WHEELS_NOT_FETCHED",
                saw=f"pip did not fetch all packages of {lock}:\n{failure}",
                why="The image holds exactly the packages of its lock.",
                fix="Check that pip can reach a package index, then start again.",
            )


def build_wheel(directory: Path) -> Path:
    """Build the wheel of this checkout, with the backend of the development lock.

    Args:
        directory: Emptied first.

    Returns:
        The wheel, the directory's only file.

    Raises:
        SetUpError: The development lock could not be installed.
        ConfigurationError: ``WHEEL_NOT_BUILT``.
    """
    install(DEVELOPMENT_LOCK)
    shutil.rmtree(directory, ignore_errors=True)
    failure = _failure_of_pip("wheel", str(ROOT), "-w", str(directory))
    if failure is not None:
        raise ConfigurationError(
            "WHEEL_NOT_BUILT",
            saw=f"pip did not build the wheel:\n{failure}",
            why="The images contain what the wheel installs.",
            fix="Correct what the last lines name in pyproject.toml.",
        )
    (wheel,) = directory.glob("*.whl")
    return wheel


def _failure_of_pip(command: str, *arguments: str) -> str | None:
    """Run pip; return the last lines of its output if it fails."""
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-m", "pip", command),
            *("--disable-pip-version-check", "--no-input", "--progress-bar=off"),
            *("--no-deps", "--no-build-isolation", *arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    return "\n".join(done.stdout.strip().splitlines()[-_OUTPUT_LINES_SHOWN:])
