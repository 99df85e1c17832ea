"""Debian's packages for what the tests need beside Python's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def why_not_installable() -> str | None:
    """Say why packages cannot be installed here; None if they can be."""
    if os.geteuid() != 0:
        return "installing it takes root"
    if shutil.which("apt-get") is None:
        return "there is no apt-get to install it"
    return None


def install_packages(what: str, *packages: str) -> bool:
    """Install packages, and return whether that went well.

    Args:
        what: What they are, to be told: it takes a while.
        packages: Their names.
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
