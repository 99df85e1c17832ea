"""Installs Debian packages that the tests need in addition to Python's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def why_not_installable() -> str | None:
    """Return why packages cannot be installed here; None if they can be."""
    if os.geteuid() != 0:
        return "installing it needs root"
    if shutil.which("apt-get") is None:
        return "this machine has no apt-get to install it"
    return None


def install_packages(what: str, *packages: str) -> bool:
    """Install packages, and return whether that succeeded.

    Args:
        what: Names the packages in a message, because the installation takes a while.
        packages: Names of the packages.
    """
    sys.stderr.write(f"tallyweir: installing {what} from Debian's packages\n")
    for command in (
        ("apt-get", "update", "-qq"),
        ("apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages),
    ):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            return False
    return True
