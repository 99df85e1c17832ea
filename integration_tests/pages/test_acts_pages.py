"""Dead letters and acts on the monitor's pages, by keyboard, in a real browser."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect
from psycopg.types.json import Jsonb

from integration_tests.harness.monitor_service import running_monitor
from integration_tests.harness.readings import Sent
from integration_tests.harness.written_topic import WrittenTopic
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.monitor.application import PAGE
from tallyweir.services.monitor.tokens import PAGE_TOKENS, Role, make_token
from tallyweir.services.process.hashed_secrets import add_secret

_PAGE_BYTES_MAX = 100_000


@dataclass(frozen=True, kw_only=True)
class _Monitor:
    """A monitor with tokens, and a topic whose records are dead letters."""

    url: str
    topic: str
    viewer: str
    operator: str
    home_dsn: str

    def open(self, page: Page, path: str = "") -> None:
        """Go to a page."""
        page.goto(f"{self.url}/#/{path}")
        expect(page.locator("main h1")).to_be_visible()

    def enter(self, page: Page, token: str) -> None:
        """Enter a token, by keyboard only."""
        page.get_by_role("button", name="Enter token").press("Enter")
        expect(page.get_by_label("Token", exact=True)).to_be_focused()
        page.keyboard.type(token)
        page.keyboard.press("Enter")
        expect(page.locator("#access")).to_contain_text("leave")


@pytest.fixture
def acting(
    home_dsn: str,
    kafka_bootstrap: str,
    topic: str,
    scenario: LedgerScenario,
    tmp_path: Path,
) -> Iterator[_Monitor]:
    """Two dead letters, of which the topic still has the records."""
    log = WrittenTopic(kafka_bootstrap, topic)
    log.create(1)
    log.send(
        [
            Sent(value=b"v%d" % number, headers=[("ce_id", b"%d" % number)])
            for number in range(2)
        ]
    )
    with psycopg.connect(home_dsn) as home:
        home.execute(
            "UPDATE tallyweir.pipeline SET definition = "
            "jsonb_set(definition, '{source,topic}', %s)",
            (Jsonb(topic),),
        )
        home.execute("DELETE FROM tallyweir.dead_letter")
        for offset in range(2):
            home.execute(
                "INSERT INTO tallyweir.dead_letter (pipeline, kafka_topic, "
                "kafka_partition, kafka_offset, sequence, reason, detail, payload) "
                "VALUES (%s, %s, 0, %s, %s, 'BAD_MAGIC', 'the first byte', %s)",
                (PIPELINE, topic, offset, scenario.sequence, b"v%d" % offset),
            )
    file = tmp_path / "tokens.json"
    texts = []
    for name, role in (("bob", Role.VIEWER), ("ada", Role.OPERATOR)):
        token, text = make_token(name=name, role=role, not_after=None)
        add_secret(file, PAGE_TOKENS, token)
        texts.append(text)
    with running_monitor(home_dsn, kafka_bootstrap, "--tokens", str(file)) as client:
        yield _Monitor(
            url=str(client.base_url).rstrip("/"),
            topic=topic,
            viewer=texts[0],
            operator=texts[1],
            home_dsn=home_dsn,
        )


def test_without_a_token_nothing_but_reading_is_offered(
    page: Page, acting: _Monitor
) -> None:
    """No payload, and no button that acts."""
    acting.open(page, f"{PIPELINE}/dead-letters/BAD_MAGIC")
    page.get_by_role("link", name=f"{acting.topic}[0] 1").click()
    expect(page.locator("main .empty")).to_contain_text("enters a token")
    acting.open(page, PIPELINE)
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)


@pytest.mark.parametrize("place", ["dead-letters", "dead-letters/BAD_MAGIC", "logs"])
def test_the_words_for_what_was_seen_need_a_token(
    page: Page, acting: _Monitor, place: str
) -> None:
    """The page says so, and shows them as soon as one is entered."""
    with psycopg.connect(acting.home_dsn) as home:
        home.execute(
            "INSERT INTO tallyweir.driver_log (pipeline, at, level, event, sequence, "
            "detail) VALUES (%s, now(), 'error', 'driver ended', 3, %s)",
            (PIPELINE, Jsonb({"saw": "the first byte"})),
        )
    acting.open(page, f"{PIPELINE}/{place}")
    hint = page.locator("main .quiet", has_text="enters a token")
    words = page.locator("td", has_text="the first byte")
    expect(hint).to_be_visible()
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(words).to_have_count(0)
    acting.enter(page, acting.viewer)
    expect(words.first).to_be_visible()
    expect(hint).to_have_count(0)


def test_a_wrong_token_is_said_and_not_kept(browser: Browser, acting: _Monitor) -> None:
    """The browser itself notes the 401 in its console, so this page may."""
    page = browser.new_page()
    acting.open(page, PIPELINE)
    page.get_by_role("button", name="Enter token").click()
    page.get_by_label("Token", exact=True).fill("twm_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="no valid token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    page.close()


def test_a_viewer_sees_what_a_record_holds_and_cannot_act(
    page: Page, acting: _Monitor
) -> None:
    """In hex and decoded, with its headers; the token survives a reload of the tab."""
    acting.open(page, f"{PIPELINE}/letter/{acting.topic}/0/1")
    acting.enter(page, acting.viewer)
    expect(page.get_by_label("payload in hex")).to_contain_text("76 31")
    expect(page.locator(".broken")).to_contain_text("BAD_MAGIC")
    expect(page.locator("td", has_text="ce_id")).to_be_visible()
    page.reload()
    expect(page.get_by_label("payload in hex")).to_contain_text("76 31")
    expect(page.get_by_role("button", name="Send this one again")).to_have_count(0)
    page.get_by_role("button", name="leave").click()
    expect(page.locator("main .empty")).to_contain_text("enters a token")
    assert page.evaluate("sessionStorage.length") == 0
    assert page.context.cookies() == []


def test_a_pipeline_is_paused_and_resumed_by_keyboard(
    page: Page, acting: _Monitor
) -> None:
    """Each shows what it would do before it can be confirmed."""
    acting.open(page, PIPELINE)
    acting.enter(page, acting.operator)
    page.locator("#acts button", has_text="Pause").press("Enter")
    dialog = page.get_by_role("dialog", name="Pause")
    confirm = dialog.get_by_role("button", name="Pause", exact=True)
    expect(confirm).to_be_disabled()
    page.keyboard.type("airports are loaded")
    page.keyboard.press("Enter")
    expect(dialog.locator(".told")).to_contain_text("can be paused")
    expect(confirm).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog.locator(".told")).to_contain_text("is paused after batch 3")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.locator("#figures .PAUSED")).to_be_visible(timeout=15_000)
    expect(page.locator("#figures .cause")).to_contain_text("ada through")
    page.locator("#acts button", has_text="Resume").press("Enter")
    dialog = page.get_by_role("dialog", name="Resume")
    expect(dialog.locator(".told")).to_contain_text("It would go on")
    page.keyboard.press("Enter")
    expect(dialog.locator(".told")).to_contain_text("It goes on")
    page.keyboard.press("Escape")
    expect(page.locator("#figures .PAUSED")).to_have_count(0, timeout=15_000)


def test_other_words_must_be_shown_anew_before_they_are_confirmed(
    page: Page, acting: _Monitor
) -> None:
    """What was shown was for the words before."""
    acting.open(page, PIPELINE)
    acting.enter(page, acting.operator)
    page.locator("#acts button", has_text="Pause").click()
    dialog = page.get_by_role("dialog", name="Pause")
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    confirm = dialog.get_by_role("button", name="Pause", exact=True)
    expect(confirm).to_be_enabled()
    dialog.get_by_label("Reason").fill("two")
    expect(confirm).to_be_disabled()


def test_dead_letters_are_sent_again_one_a_group_or_all(
    page: Page, acting: _Monitor
) -> None:
    """What was sent is shown where it was, and skipped the next time."""
    acting.open(page, f"{PIPELINE}/letter/{acting.topic}/0/1")
    acting.enter(page, acting.operator)
    _send_again(page, "Send this one again", "1 dead letter would be sent")
    expect(page.locator("h2", has_text="Sent again")).to_be_visible()
    acting.open(page, f"{PIPELINE}/dead-letters")
    cells = page.locator("tbody tr").first.locator("td")
    expect(cells.nth(2)).to_have_text("1")
    _send_again(page, "Send again", "1 skipped: sent again before")
    expect(cells.nth(2)).to_have_text("2")
    page.get_by_role("button", name="Send all again").click()
    dialog = page.get_by_role("dialog")
    page.keyboard.type("once more")
    page.keyboard.press("Enter")
    expect(dialog.locator(".told")).to_contain_text("2 skipped")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="BAD_MAGIC").click()
    expect(page.locator("tbody tr").first.locator("td").last).to_contain_text("[0]")
    with psycopg.connect(acting.home_dsn) as home:
        rows = home.execute("SELECT asked_by, reason FROM tallyweir.redrive").fetchall()
    assert len(rows) == 2
    assert all(who.startswith("ada through ") for who, _ in rows)


def _send_again(page: Page, button: str, told: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    page.keyboard.type("mended")
    page.keyboard.press("Enter")
    expect(dialog.locator(".told")).to_contain_text(told)
    page.keyboard.press("Enter")
    expect(dialog.locator(".told")).to_contain_text(
        re.compile(r"dead letters? sent again")
    )
    page.keyboard.press("Escape")


def test_tables_are_shown_as_big_and_as_fresh_as_they_are(
    page: Page, acting: _Monitor
) -> None:
    """Each output with the last batch that gave it rows."""
    acting.open(page, PIPELINE)
    page.get_by_role("link", name="Tables").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    cells = rows.first.locator("td")
    expect(cells.first).to_contain_text("departures")
    expect(cells.nth(3)).to_contain_text("2026-03-01 03:00:00Z")
    expect(cells.nth(5)).to_contain_text("3")
    expect(cells.nth(6)).to_have_text("15")
    expect(rows.nth(1).locator("td").nth(7)).to_have_text("1")


def test_the_page_stays_small() -> None:
    """Compressed, with all that is vendored: it is opened at night, over a phone."""
    files = [
        path for path in PAGE.rglob("*") if re.search(r"\.(js|css|html)$", path.name)
    ]
    size = sum(len(gzip.compress(path.read_bytes())) for path in files)
    print(size)  # noqa: T201 - shown where it fails
    assert size < _PAGE_BYTES_MAX
