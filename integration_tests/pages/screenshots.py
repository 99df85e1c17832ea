"""``python -m integration_tests.pages.screenshots URL PIPELINE``: pictures for docs.

They are of a monitor that runs, of a pipeline that works, and are written to
``docs/monitor``.
"""

from __future__ import annotations

import argparse

from playwright.sync_api import Browser, ViewportSize, expect

from integration_tests.harness.headless_chromium import running_chromium
from services.embedded.state_directory import ROOT

_PICTURES = ROOT / "docs" / "monitor"
_DESK = ViewportSize(width=1280, height=900)
_PHONE = ViewportSize(width=390, height=844)


def main() -> None:
    """Take a picture of each page, the first ones in the dark and on a phone too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("pipeline")
    given = parser.parse_args()
    _PICTURES.mkdir(exist_ok=True)
    pages = {
        "pipelines": "",
        "pipeline": given.pipeline,
        "batches": f"{given.pipeline}/batches",
        "dead-letters": f"{given.pipeline}/dead-letters",
    }
    with running_chromium() as browser:
        for name, path in pages.items():
            _take(browser, f"{given.url}/#/{path}", name, _DESK)
        pipeline = f"{given.url}/#/{given.pipeline}"
        _take(browser, pipeline, "pipeline-dark", _DESK, is_dark=True)
        _take(browser, pipeline, "pipeline-phone", _PHONE)


def _take(
    browser: Browser, url: str, name: str, size: ViewportSize, *, is_dark: bool = False
) -> None:
    page = browser.new_page(viewport=size, color_scheme="dark" if is_dark else "light")
    page.goto(url)
    expect(page.locator("main h1")).to_be_visible()
    # What the page is told of by the next look is part of it.
    expect(page.locator("#heard")).to_contain_text("as of")
    page.screenshot(path=_PICTURES / f"{name}.png")
    page.close()


if __name__ == "__main__":
    main()
