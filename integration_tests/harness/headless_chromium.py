"""Chromium without a window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tallyweir.services.dev.debian_packages import find_chromium

#: It runs as root here, and must not ask its maker's hosts for anything.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run the Chromium that is here in the block."""
    path = find_chromium()
    assert path is not None, "no Chromium is here; `./tallyweir test` installs one"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield opened
        opened.close()
