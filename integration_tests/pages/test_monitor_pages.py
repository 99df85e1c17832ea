"""What somebody sees and does on the monitor's pages, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from integration_tests.ledger_scenario import PIPELINE, LedgerScenario


def _open(page: Page, monitor: str, path: str = "") -> None:
    page.goto(f"{monitor}/#/{path}")
    expect(page.locator("main h1")).to_be_visible()


def test_the_overview_names_each_pipeline_with_its_state(
    page: Page, monitor: str
) -> None:
    """Nobody works for it, so it is stopped, and never green."""
    _open(page, monitor)
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("a")).to_have_text(PIPELINE)
    state = row.locator(".state")
    expect(state).to_have_text("STOPPED")
    expect(page.locator("#troubles")).to_contain_text("orders")


def test_what_changes_in_the_ledger_is_shown_without_a_reload(
    page: Page, monitor: str, scenario: LedgerScenario
) -> None:
    """The page is told of every look."""
    _open(page, monitor)
    cell = page.locator("tbody tr td").last
    expect(cell).to_contain_text("3")
    scenario.publish({0: "C", 3: ""})
    expect(cell).to_contain_text("4", timeout=15_000)


def test_a_pipeline_shows_its_graph_with_the_law_and_a_tick(
    page: Page, monitor: str
) -> None:
    """What is drawn is told to who cannot see it as well."""
    _open(page, monitor)
    page.get_by_role("link", name=PIPELINE).click()
    law = page.locator(".law")
    expect(law).to_contain_text("✓")
    expect(law).to_contain_text(
        "21 read = 15 committed + 2 duplicate + 2 dead + 1 expired + 1 filtered"
    )
    graph = page.locator("#graph svg")
    told = re.compile("17 from validate to deduplicate")
    expect(graph).to_have_attribute("aria-label", told)
    for step in ("orders", "decode", "deduplicate", "publish"):
        expect(graph.get_by_text(step, exact=True)).to_be_visible()


def test_a_pipeline_shows_where_its_time_goes(
    page: Page, monitor: str, scenario: LedgerScenario
) -> None:
    """In its boxes, in a table that can be sorted, and in one line what keeps it."""
    scenario.write_measures()
    _open(page, monitor, PIPELINE)
    expect(page.locator("#bottleneck")).to_contain_text("decode, 50 %")
    graph = page.locator("#graph svg")
    expect(graph.get_by_text("95 % 700 ms · 70 %")).to_be_visible()
    page.get_by_text("Parts of a batch").click()
    parts = page.locator(".parts tbody tr td:first-child")
    expect(parts.first).to_have_text("between")
    page.get_by_role("button", name="Sort by share").click()
    expect(parts.first).to_have_text("decode")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("share")
    expect(page.get_by_text("#0af1")).to_be_visible()


def test_each_number_tells_its_formula_and_its_query(page: Page, monitor: str) -> None:
    """By mouse or by keyboard; Escape closes it."""
    _open(page, monitor, PIPELINE)
    button = page.locator("#figures button", has_text="lag")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("#formula")
    expect(dialog).to_be_visible()
    expect(dialog.locator("#formula-text")).to_contain_text("last stable offset")
    expect(dialog.locator("#formula-query")).to_contain_text("partition_progress")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()


def test_every_number_has_a_formula(page: Page, monitor: str) -> None:
    """Headings that are no button are names and moments."""
    for path in ("", PIPELINE, f"{PIPELINE}/batches", f"{PIPELINE}/dead-letters"):
        _open(page, monitor, path)
        expect(page.locator("th.number").first).to_be_attached()
        plain = page.locator("th.number:not(:has(button))")
        assert set(plain.all_inner_texts()) <= {"bytes"}, path


def test_batches_are_listed_with_a_way_to_older_ones(
    page: Page, monitor: str, scenario: LedgerScenario
) -> None:
    """Fifty at a time."""
    for _ in range(50):
        scenario.publish({0: "C"})
    _open(page, monitor, PIPELINE)
    page.get_by_role("link", name="Batches").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("orders[0] 61 … 62")
    page.get_by_role("link", name="Older batches").click()
    expect(rows).to_have_count(3)
    page.go_back()
    expect(rows).to_have_count(50)


def test_dead_letters_lead_from_a_reason_to_an_event(page: Page, monitor: str) -> None:
    """And from there to what became of it."""
    _open(page, monitor, PIPELINE)
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name="UNDECODABLE").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="0-11").click()
    expect(page.locator(".told")).to_contain_text("offset 11 became a dead letter")


def test_an_event_is_explained_when_it_is_asked_for(page: Page, monitor: str) -> None:
    """The form has the keyboard at once, and what it asks is in the address."""
    _open(page, monitor, PIPELINE)
    page.get_by_role("link", name="IDs").click()
    expect(page.get_by_label("Producer's ID")).to_be_focused()
    page.keyboard.type("0-6")
    page.keyboard.press("Enter")
    expect(page.locator(".told")).to_contain_text("batch 2")
    assert page.url.endswith(f"#/{PIPELINE}/why/0-6")


def test_a_pipeline_that_is_not_there_is_said_with_those_that_are(
    browser: Browser, monitor: str
) -> None:
    """The browser itself notes the 404 in its console, so this page may."""
    page = browser.new_page()
    page.goto(f"{monitor}/#/elsewhere/batches")
    expect(page.locator("main .empty").first).to_contain_text(PIPELINE)
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(
    page: Page, monitor: str, scheme: str, width: int
) -> None:
    """On a phone tables scroll in their own frame; ink differs from paper."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})
    for path in ("", PIPELINE, f"{PIPELINE}/batches", f"{PIPELINE}/dead-letters"):
        _open(page, monitor, path)
        root = page.locator("html")
        excess = root.evaluate("(root) => root.scrollWidth - root.clientWidth")
        assert excess == 0, path
    contrast = page.evaluate(_CONTRAST)
    assert contrast > 7


#: Of the body's text to its ground, as WCAG 2 defines it.
_CONTRAST = """() => {
  const light = (property) => {
    const shade = getComputedStyle(document.body)[property].match(/[0-9.]+/g);
    const [r, g, b] = shade.slice(0, 3).map((one) => one / 255)
      .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [high, low] = [light("color"), light("backgroundColor")].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}"""
