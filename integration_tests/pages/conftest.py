"""A Chromium for all tests of the monitor's pages, and a page for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page

from integration_tests.harness.headless_chromium import running_chromium
from integration_tests.harness.monitor_service import running_monitor
from integration_tests.ledger_scenario import LedgerScenario


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    with running_chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong: an error in its console fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    wrong: list[str] = []

    def note_message(message: ConsoleMessage) -> None:
        # The monitor of a test ends before its page, which asks once more.
        is_end = any(
            error in message.text
            for error in ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING")
        )
        if message.type in {"error", "warning"} and not is_end:
            wrong.append(f"{message.text} {message.location.get('url')}")

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
    assert scenario.sequence >= 3
    with running_monitor(home_dsn, kafka_bootstrap) as client:
        yield str(client.base_url).rstrip("/")
