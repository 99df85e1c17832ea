"""Installs what tests need of Debian in addition to Python: packages, a Chromium."""

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


_CHROMIUM_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    found = (shutil.which(name) for name in _CHROMIUM_PROGRAMS)
    return next((path for path in found if path), None)


def why_no_chromium() -> str | None:
    """Install a Chromium if there is none; return why that is impossible, or None."""
    if find_chromium() is not None:
        return None
    reason = why_not_installable()
    if reason is not None:
        return f"Chromium is not installed, and {reason}"
    if not install_packages("Chromium", "chromium") or find_chromium() is None:
        return "Chromium is not installed, and installing Debian's package failed"
    return None
