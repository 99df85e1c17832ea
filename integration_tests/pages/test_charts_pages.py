"""Charts, receipts and copies of events on the monitor's pages, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import Page, expect
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from integration_tests.harness.monitor_service import running_monitor
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.monitor.tokens import PAGE_TOKENS, Role, make_token
from tallyweir.services.process.hashed_secrets import add_secret
from tallyweir.sinks.protocol.measures import age_bucket

#: Every caption of a chart, in their order.
_CAPTIONS = [
    "events/s",
    "seconds from Kafka to COMMIT",
    "seconds from plan to publish",
    "seconds of the phases",
    "in 10 s",
    "dead letters in 10 s",
    "IDs that a filter did not spare",
    "freshness",
    "seconds of backlog",
    "lag",
    "until Kafka deletes what is unread",
    "prepared transactions, in doubt",
    "age of the oldest",
    "size of state",
    "IDs remembered",
]


@pytest.fixture
def charted(
    scenario: LedgerScenario, connection: psycopg.Connection[TupleRow]
) -> LedgerScenario:
    """The last half hour has a batch a minute, and gauges all the time."""
    for _ in range(27):
        scenario.publish({0: "CCCX"})
    connection.execute(
        "UPDATE tallyweir.batch SET published_at = "
        "now() - (30 - sequence) * interval '1 min' - interval '20 s'"
    )
    connection.execute(
        "UPDATE tallyweir.batch SET planned_at = published_at - interval '3 s', "
        "staged_at = published_at - interval '1 s'"
    )
    ages = {age_bucket(0.4): 90, age_bucket(2.5): 9, age_bucket(9.0): 1}
    connection.execute(
        "INSERT INTO tallyweir.batch_measures "
        "SELECT pipeline, sequence, %s FROM tallyweir.batch",
        (Jsonb({"ages": ages, "ids": {"asked": 200, "looked_up": 8, "met": 6}}),),
    )
    connection.execute(
        "INSERT INTO tallyweir.pipeline_gauge "
        "SELECT pipeline, date_bin('30 s', at, 'epoch'), 5, 4000, 40, 90, 500000, 1, "
        "0.2, 0, 0, 40960, 90, 81920 FROM tallyweir.pipeline, "
        "generate_series(now() - interval '29 min', now() - interval '1 min', '30 s') "
        "AS moment (at)"
    )
    connection.commit()
    return scenario


def _open(page: Page, monitor: str, path: str = "") -> None:
    page.goto(f"{monitor}/#/{path}")
    expect(page.locator("main h1")).to_be_visible()


def test_each_chart_is_drawn_and_tells_its_formula_and_a_query_that_runs(
    page: Page,
    charted: LedgerScenario,
    monitor: str,
    connection: psycopg.Connection[TupleRow],
) -> None:
    """What is one click away can be asked of the home database as it stands there."""
    assert charted.sequence == 30
    _open(page, monitor, PIPELINE)
    expect(page.locator("figure canvas")).to_have_count(len(_CAPTIONS))
    captions = page.locator("figcaption button")
    assert captions.all_inner_texts() == _CAPTIONS
    for at in range(len(_CAPTIONS)):
        captions.nth(at).press("Enter")
        dialog = page.locator("#formula")
        expect(dialog).to_be_visible()
        query = dialog.locator("#formula-query").inner_text()
        for statement in query.split(";\n"):
            # Names of tables, which a formula has as $1 where it is no pipeline's.
            asked = statement.replace("pg_total_relation_size($1)", "1")
            asked = asked.replace("$1", "'departures'").replace("oid = $2", "true")
            connection.execute(asked.encode())
        page.keyboard.press("Escape")
        expect(captions.nth(at)).to_be_focused()


def test_charts_outlive_the_monitor(
    page: Page, charted: LedgerScenario, monitor: str, home_dsn: str
) -> None:
    """Another one, which reaches no broker, draws the same half hour."""
    assert charted.sequence == 30
    _open(page, monitor, PIPELINE)
    expect(page.locator("figure canvas")).to_have_count(len(_CAPTIONS))
    with running_monitor(home_dsn, "127.0.0.1:1") as other:
        _open(page, str(other.base_url).rstrip("/"), PIPELINE)
        expect(page.locator("figure canvas")).to_have_count(len(_CAPTIONS))


def test_the_overview_has_the_last_receipt_with_its_age(
    page: Page,
    charted: LedgerScenario,
    monitor: str,
    connection: psycopg.Connection[TupleRow],
) -> None:
    """A verdict that does not hold is said in words too."""
    assert charted.sequence == 30
    _open(page, monitor)
    cell = page.locator("tbody tr td").nth(-2)
    expect(cell).to_have_text("never")
    connection.execute(
        "INSERT INTO tallyweir.receipt (pipeline, is_verified, summary, batches, "
        "taken_at) VALUES (%s, false, 'Two rows are missing.', 30, "
        "now() - interval '5 min')",
        (PIPELINE,),
    )
    connection.commit()
    expect(cell).to_contain_text("✗ broken", timeout=15_000)
    expect(cell).to_contain_text("5 min ago")
    expect(cell.locator("[title]")).to_have_attribute(
        "title", re.compile(r"Two rows are missing\. \(30 batches, by \w+\)")
    )


def test_copies_of_an_event_show_their_records_to_who_may_see_them(
    page: Page,
    charted: LedgerScenario,
    home_dsn: str,
    kafka_bootstrap: str,
    tmp_path: Path,
) -> None:
    """In hex and as far as they decode; leaving hides them again."""
    assert charted.sequence == 30
    file = tmp_path / "tokens.json"
    token, text = make_token(name="bob", role=Role.VIEWER, not_after=None)
    add_secret(file, PAGE_TOKENS, token)
    with running_monitor(home_dsn, kafka_bootstrap, "--tokens", str(file)) as client:
        _open(page, str(client.base_url).rstrip("/"), f"{PIPELINE}/why/0-11")
        copies = page.locator("#copies")
        expect(copies).to_contain_text("enters a token")
        expect(page.locator("main")).not_to_contain_text("de ad")
        page.get_by_role("button", name="Enter token").press("Enter")
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        expect(copies.get_by_role("heading")).to_have_text("orders[0] 11: dead")
        expect(copies.get_by_label("payload in hex")).to_contain_text("de ad")
        expect(copies.locator(".broken")).to_contain_text("BAD_MAGIC")
        page.get_by_role("button", name="leave").click()
        expect(copies).to_contain_text("enters a token")
        expect(page.locator("main")).not_to_contain_text("de ad")
