"""``python -m integration_tests.pages.screenshots URL PIPELINE TOKEN ID``: for docs.

They are of a monitor that runs, of a pipeline that works and has dead letters, seen by
an admin where it says so, and are written to ``docs/monitor``.
"""

from __future__ import annotations

import argparse

from playwright.sync_api import Browser, Page, ViewportSize, expect

from integration_tests.harness.headless_chromium import running_chromium
from tallyweir.services.local.embedded.state_directory import ROOT

_PICTURES = ROOT / "docs" / "monitor"
_DESK = ViewportSize(width=1280, height=900)
#: Headers are read from the topic, one page of letters after the other.
_ACT_MS = 30_000
_PHONE = ViewportSize(width=390, height=844)


def main() -> None:
    """Take a picture of each page, the first ones in the dark and on a phone too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("pipeline")
    parser.add_argument("token", help="An admin's.")
    parser.add_argument("event_id", help="Of an event whose erasure is tried.")
    given = parser.parse_args()
    _PICTURES.mkdir(exist_ok=True)
    pages = {
        "pipelines": "",
        "pipeline": given.pipeline,
        "batches": f"{given.pipeline}/batches",
        "dead-letters": f"{given.pipeline}/dead-letters",
        "tables": f"{given.pipeline}/tables",
    }
    with running_chromium() as browser:
        for name, path in pages.items():
            _take(browser, f"{given.url}/#/{path}", name, _DESK)
        pipeline = f"{given.url}/#/{given.pipeline}"
        _take(browser, pipeline, "pipeline-dark", _DESK, is_dark=True)
        _take(browser, pipeline, "pipeline-phone", _PHONE)
        _take_as_operator(browser, given.url, given.pipeline, given.token)
        take_steering(browser, given.url, given.pipeline, given.token)
        take_dry_runs(browser, given.url, given.pipeline, given.token, given.event_id)
        _take_charts(browser, pipeline)
        _take_copies(browser, pipeline, given.token, given.event_id)


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


def _take_as_operator(browser: Browser, url: str, pipeline: str, token: str) -> None:
    """Take what is only shown to who has a token: a letter, and an act's dry run."""
    page = browser.new_page(viewport=_DESK)
    _enter(page, f"{url}/#/{pipeline}/dead-letters", token)
    page.get_by_role("button", name="Send again", exact=True).first.click()
    page.get_by_label("Reason").fill("the contract is there now")
    page.keyboard.press("Enter")
    expect(page.locator("dialog .told")).to_contain_text(
        "would be sent", timeout=_ACT_MS
    )
    page.screenshot(path=_PICTURES / "redrive.png")
    page.keyboard.press("Escape")
    page.locator("tbody a").first.click()
    page.locator("tbody a").first.click()
    expect(page.get_by_label("payload in hex")).to_be_visible()
    page.screenshot(path=_PICTURES / "letter.png")
    page.close()


def _enter(page: Page, url: str, token: str) -> None:
    page.goto(url)
    page.get_by_role("button", name="Enter token").click()
    page.get_by_label("Token", exact=True).fill(token)
    page.keyboard.press("Enter")
    expect(page.locator("#access")).to_contain_text("leave")


def take_steering(browser: Browser, url: str, pipeline: str, token: str) -> None:
    """Take the page of acts, in the dark and on a phone too."""
    for name, size, is_dark in (
        ("steering", _DESK, False),
        ("steering-dark", _DESK, True),
        ("steering-phone", _PHONE, False),
    ):
        page = browser.new_page(
            viewport=size, color_scheme="dark" if is_dark else "light"
        )
        _enter(page, f"{url}/#/{pipeline}/steering", token)
        button = page.get_by_role("button", name="Move offsets")
        expect(button).to_be_visible(timeout=_ACT_MS)
        offsets = page.get_by_role("region", name="Offsets").locator("tbody td")
        expect(offsets.first).to_be_visible(timeout=_ACT_MS)
        page.screenshot(path=_PICTURES / f"{name}.png", full_page=not is_dark)
        page.close()


def take_dry_runs(
    browser: Browser, url: str, pipeline: str, token: str, event_id: str
) -> None:
    """Take what a move and an erasure would do; no snapshot may be there."""
    page = browser.new_page(viewport=_DESK)
    _enter(page, f"{url}/#/{pipeline}/steering", token)
    cell = page.get_by_role("region", name="Offsets").locator("tbody td").first
    expect(cell).to_contain_text("[", timeout=_ACT_MS)
    place = cell.inner_text().replace("[", ":").replace("]", "")
    _take_dry_run(page, "Move offsets", "offsets-reset", to_offset=f"{place}=0")
    _take_dry_run(page, "Erase an event", "erase", id=event_id)
    page.close()


def _take_dry_run(page: Page, title: str, picture: str, **values: str) -> None:
    page.get_by_role("button", name=title, exact=True).click()
    dialog = page.get_by_role("dialog", name=title)
    for name, value in {**values, "reason": "request 4711"}.items():
        dialog.locator(f"[name={name}]").fill(value)
    page.keyboard.press("Enter")
    expect(dialog.locator(".told")).to_contain_text("Nothing was", timeout=_ACT_MS)
    page.screenshot(path=_PICTURES / f"{picture}.png")
    page.keyboard.press("Escape")


def _take_charts(browser: Browser, pipeline: str) -> None:
    """Take the charts alone, which lie below what the window shows."""
    page = browser.new_page(viewport=_DESK)
    page.goto(pipeline)
    expect(page.locator("figure canvas").first).to_be_visible(timeout=_ACT_MS)
    expect(page.locator("#heard")).to_contain_text("as of")
    # The head of the page stays in the window, and would lie on them.
    page.locator("header").evaluate("(head) => { head.style.position = 'static'; }")
    page.locator(".charts").screenshot(path=_PICTURES / "charts.png")
    page.close()


def _take_copies(browser: Browser, pipeline: str, token: str, event_id: str) -> None:
    """Take what is shown of an event's copies to who has a token."""
    page = browser.new_page(viewport=_DESK)
    page.goto(f"{pipeline}/why/{event_id}")
    page.get_by_role("button", name="Enter token").click()
    page.get_by_label("Token", exact=True).fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_label("payload in hex").first).to_be_visible(timeout=_ACT_MS)
    page.screenshot(path=_PICTURES / "ids.png")
    page.close()


if __name__ == "__main__":
    main()
