"""A Chromium for all tests of the monitor's pages, and a page for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from integration_tests.harness.monitor_service import running_monitor
from integration_tests.ledger_scenario import LedgerScenario
from services.chromium import find_chromium

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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    path = find_chromium()
    assert path is not None, "no Chromium is here; `./tallyweir test` installs one"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong: an error in its console fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    wrong: list[str] = []

    def note_message(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            wrong.append(message.text)

    opened.on("console", note_message)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    context.close()
    assert not wrong


@pytest.fixture
def monitor(
    home_dsn: str, kafka_bootstrap: str, scenario: LedgerScenario
) -> Iterator[str]:
    """The address of a monitor of the scenario's database."""
    assert scenario.sequence == 3
    with running_monitor(home_dsn, kafka_bootstrap) as client:
        yield str(client.base_url).rstrip("/")
