"""The newest rows of each step on a pipeline's page, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from integration_tests.harness.monitor_service import running_monitor
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.monitor.tokens import PAGE_TOKENS, Role, make_token
from tallyweir.services.process.hashed_secrets import add_secret


@pytest.fixture
def viewer(tmp_path: Path) -> tuple[Path, str]:
    """A tokens file, and the token of somebody who may see what records hold."""
    file = tmp_path / "tokens.json"
    token, text = make_token(name="bob", role=Role.VIEWER, not_after=None)
    add_secret(file, PAGE_TOKENS, token)
    return file, text


@pytest.fixture
def url(home_dsn: str, kafka_bootstrap: str, viewer: tuple[Path, str]) -> Iterator[str]:
    """The address of a monitor with tokens."""
    file = str(viewer[0])
    with running_monitor(home_dsn, kafka_bootstrap, "--tokens", file) as client:
        yield f"{str(client.base_url).rstrip('/')}/#/{PIPELINE}"


def test_rows_of_steps_are_shown_to_who_enters_a_token(
    page: Page, url: str, viewer: tuple[Path, str], scenario: LedgerScenario
) -> None:
    """With their place in Kafka; what is redacted is named, and text is no markup."""
    scenario.write_samples()
    scenario.write_measures()
    page.goto(url)
    samples = page.locator("#samples")
    expect(samples).to_contain_text("enters a token")
    # A name that nobody named may quote a record as well.
    unnamed = page.locator("#unnamed")
    expect(unnamed).to_contain_text("enters a token")
    expect(unnamed.locator("tbody td").first).to_have_text("\u2013")
    page.get_by_role("button", name="Enter token").press("Enter")
    page.keyboard.type(viewer[1])
    page.keyboard.press("Enter")
    expect(unnamed.locator("tbody code")).to_have_text("coupon: jsonb")
    decoded = samples.locator("details", has_text="decode")
    expect(decoded.locator("table")).to_be_hidden()
    decoded.locator("summary").press("Enter")
    expect(decoded.locator("th")).to_have_text(["record", "origin", "email"])
    cells = decoded.locator("tbody td")
    expect(cells).to_have_text(["orders[0] 2", "<JFK>", "redacted"])
    staged = samples.locator("details", has_text="stage departures_by_hour")
    staged.locator("summary").click()
    expect(staged.locator("tbody td")).to_have_text(["null"])
    page.get_by_role("button", name="leave").click()
    expect(samples).to_contain_text("enters a token")
    expect(samples.locator("details")).to_have_count(0)


def test_samples_tell_their_query_and_how_to_have_some(
    page: Page, url: str, scenario: LedgerScenario
) -> None:
    """Where no row is kept, it is said what keeps them."""
    assert scenario.sequence == 3
    page.goto(url)
    expect(page.locator("#samples")).to_contain_text("monitor: {samples: 5}")
    page.get_by_role("button", name="Samples").press("Enter")
    dialog = page.locator("#formula")
    expect(dialog.locator("#formula-text")).to_contain_text("monitor.redact")
    expect(dialog.locator("#formula-query")).to_contain_text("tallyweir.sample")


def test_an_answer_that_breaks_off_is_told_in_its_own_part_of_the_page(
    page: Page, url: str, scenario: LedgerScenario
) -> None:
    """All else of the page is there, and nothing goes wrong unseen."""
    assert scenario.sequence == 3
    page.route("**/unnamed-fields", lambda route: route.fulfill(body="["))
    page.goto(url)
    expect(page.locator("#unnamed .empty")).to_contain_text("JSON")
    expect(page.locator("#samples")).to_contain_text("monitor: {samples: 5}")
