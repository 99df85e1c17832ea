"""Finds a Chromium for tests of pages, or installs Debian's."""

from __future__ import annotations

import shutil

from tallyweir.services.dev.debian_packages import install_packages, why_not_installable

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    found = (shutil.which(name) for name in _PROGRAMS)
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
