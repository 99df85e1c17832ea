"""Acts on the page of steering: each tried out, done, and seen on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from psycopg.rows import TupleRow

from integration_tests.harness.forked_ledger import add_windows
from integration_tests.harness.page_asker import ActDialog, PageAsker, asking
from integration_tests.harness.postgres_cluster import await_row
from integration_tests.harness.postgres_driver import PostgresDriver, query
from integration_tests.harness.readings import Sent
from integration_tests.harness.versioned_windows import FIRST, SECOND, change, publish
from integration_tests.harness.whole_database import read_database
from integration_tests.harness.written_topic import WrittenTopic
from integration_tests.ledger_scenario import PIPELINE, TOPIC, LedgerScenario
from tallyweir.services.monitor.tokens import Role
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.protocol.offsets import TopicPartition

_STEERING = f"{PIPELINE}/steering"
_POSITION = "SELECT next_offset FROM tallyweir.partition_progress"
_ACTS = "SELECT kind, reason, done_by FROM tallyweir.act ORDER BY epoch"
_RECORDS = 15


@dataclass(frozen=True, kw_only=True)
class _Steered:
    """A pipeline whose topic is there, and the page of its acts."""

    asker: PageAsker
    dsn: str
    scenario: LedgerScenario

    def open(self, page: Page, role: Role | None = Role.OPERATOR) -> None:
        """Go to the page of acts."""
        self.asker.open(page, _STEERING, role)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the home database."""
        return query(self.dsn, statement)


@pytest.fixture
def steered(
    home_dsn: str,
    kafka_bootstrap: str,
    connection: psycopg.Connection[TupleRow],
    tmp_path: Path,
) -> Iterator[_Steered]:
    """Three batches of twelve records, of fifteen that the topic has."""
    log = WrittenTopic(kafka_bootstrap, TOPIC)
    log.create(1)
    log.send([Sent(value=b"%d" % number) for number in range(_RECORDS)])
    scenario = LedgerScenario(connection=connection).register(p0=0)
    for fates in ("CCCD", "CLFEC", "CCX"):
        scenario.publish({0: fates})
    add_windows(connection)
    (place,) = KafkaAdmin(kafka_bootstrap, TOPIC).read_positions().items()
    assert place[0] == TopicPartition(TOPIC, 0)
    connection.execute(
        "UPDATE tallyweir.partition_progress SET topic_id = %s", (place[1].topic_id,)
    )
    connection.commit()
    with asking(home_dsn, kafka_bootstrap, tmp_path) as asker:
        yield _Steered(asker=asker, dsn=home_dsn, scenario=scenario)
    log.delete()


def _section(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title)


def _button(page: Page, section: str, title: str) -> Locator:
    return _section(page, section).get_by_role("button", name=title, exact=True)


def test_offsets_are_moved_after_a_preview_of_what_is_there_already(
    page: Page, steered: _Steered
) -> None:
    """The dry run tells the rows and changes nothing; the act is listed by name."""
    before = read_database(steered.dsn)
    steered.open(page)
    cells = _section(page, "Offsets").locator("tbody td")
    expect(cells.nth(1)).to_have_text("12")
    expect(cells.nth(4)).to_have_text("3")
    act = ActDialog(page, _button(page, "Offsets", "Move offsets"))
    act.try_out(
        "10 records are read again",
        "6 are rows of departures: they stay",
        "1 are dead letters: they get another chance",
        to_offset=f"{TOPIC}:0=2",
        reason="a mended contract",
    )
    assert read_database(steered.dsn) == before
    act.do("10 records are read again", "goes on from there")
    assert steered.query(_POSITION) == [(2,)]
    expect(cells.nth(1)).to_have_text("2")
    row = _section(page, "Acts").locator("tbody tr").first
    expect(row).to_contain_text("a mended contract")
    expect(row).to_contain_text("operator.name through")
    expect(row).to_contain_text("stood at 12")
    expect(row).to_contain_text("target 2")
    ((kind, reason, who),) = steered.query(_ACTS)
    assert (kind, reason) == ("offsets reset", "a mended contract")
    assert who.startswith("operator.name through ")


def test_offsets_are_moved_to_a_time(page: Page, steered: _Steered) -> None:
    """In UTC, as the page tells all times."""
    steered.open(page)
    act = ActDialog(page, _button(page, "Offsets", "Move offsets"))
    act.try_out(
        "12 records are read again", to_time="2026-01-01T00:00", reason="from the start"
    )
    act.do("goes on from there")
    assert steered.query(_POSITION) == [(0,)]


def test_what_is_refused_tells_what_was_seen_why_and_the_way_out(
    browser: Browser, steered: _Steered
) -> None:
    """The browser itself notes the 409 in its console, so this page may."""
    page = browser.new_page()
    before = read_database(steered.dsn)
    steered.open(page)
    act = ActDialog(page, _button(page, "Offsets", "Move offsets"))
    act.refused(
        "OFFSET_NOT_IN_KAFKA",
        "Kafka has 0 to 15",
        "Choose an offset in that range.",
        to_offset=f"{TOPIC}:0=99",
        reason="too far",
    )
    act.refused("RESET_TARGET", to_time="2026-01-01T00:00")
    # Without a reason the browser itself asks for one, and nothing is sent.
    act.box.locator("[name=reason]").fill("")
    act.box.locator("form button").press("Enter")
    expect(act.box.locator("[name=reason]")).to_be_focused()
    expect(act.confirm).to_be_disabled()
    assert read_database(steered.dsn) == before
    page.close()


def test_a_snapshot_is_taken_restored_and_dropped(
    page: Page, steered: _Steered
) -> None:
    """What came after it is gone then, and reads on where it was taken."""
    steered.open(page)
    before = read_database(steered.dsn)
    act = ActDialog(page, _button(page, "Snapshots", "Take a snapshot"))
    act.try_out("is of batch 3", name="before-v2", reason="release 42")
    assert read_database(steered.dsn) == before
    act.do("No driver was fenced")
    taken = "SELECT name, sequence, taken_by FROM tallyweir.snapshot"
    ((name, sequence, who),) = steered.query(taken)
    assert (name, sequence) == ("before-v2", 3)
    assert who.startswith("operator.name through ")
    row = _section(page, "Snapshots").locator("tbody tr")
    expect(row).to_contain_text("release 42")

    steered.scenario.publish({0: "CX"})
    before = read_database(steered.dsn)
    act = ActDialog(page, row.get_by_role("button", name="Restore"))
    act.try_out("taken back: 1 batches", "1 rows of departures", reason="v2 is wrong")
    assert read_database(steered.dsn) == before
    act.do("taken back: 1 batches", "reads on")
    assert steered.query("SELECT max(sequence) FROM tallyweir.batch") == [(3,)]
    assert steered.query("SELECT count(*) FROM departures") == [(8,)]
    assert steered.query(_POSITION) == [(12,)]

    before = read_database(steered.dsn)
    act = ActDialog(page, row.get_by_role("button", name="Drop"))
    act.try_out("of batch 3", reason="released")
    assert read_database(steered.dsn) == before
    act.do("is dropped")
    assert steered.query(taken) == []
    expect(_section(page, "Snapshots")).to_contain_text("No snapshots")


def test_a_fork_is_made_compared_and_put_in_front(
    page: Page, steered: _Steered
) -> None:
    """Rows that differ are shown to who may see payloads; readers find the fork's."""
    before = read_database(steered.dsn)
    steered.open(page)
    act = ActDialog(page, _button(page, "Forks", "Fork"))
    act.try_out("8 rows copied", new="departures-2", reason="v2")
    assert read_database(steered.dsn) == before
    act.do("goes on after batch 3")
    forked = "SELECT count(*) FROM departures__departures_2"
    assert steered.query(forked) == [(8,)]
    row = _section(page, "Forks").locator("tbody tr")
    expect(row).to_contain_text("departures → departures__departures_2")

    with psycopg.connect(steered.dsn) as home:
        home.execute("DELETE FROM departures__departures_2 WHERE event_id = '0-1'")
    row.get_by_role("button", name="Compare").press("Enter")
    differing = _section(page, "Forks").locator("[aria-live] tbody tr").first
    expect(differing.locator("td").nth(1)).to_have_text("7")
    expect(differing.locator("td").nth(3)).to_have_text("1")
    expect(_section(page, "Forks").locator("pre")).to_contain_text("0-1")

    before = read_database(steered.dsn)
    act = ActDialog(page, row.get_by_role("button", name="Switch"))
    act.try_out("departures has the rows of departures-2", reason="compared")
    assert read_database(steered.dsn) == before
    act.do("those of departures are in departures__departures")
    assert steered.query("SELECT count(*) FROM departures") == [(7,)]
    assert {kind for kind, *_ in steered.query(_ACTS)} == {"fork", "switch"}
    # Each works in the other's shadow now, and the way back is on the other's page.
    expect(_section(page, "Forks")).to_contain_text("No forks")


def test_a_version_is_rolled_back_by_the_verdict_of_plan(
    page: Page, home_dsn: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    """The versions are listed with what going back would mean."""
    log = WrittenTopic(kafka_bootstrap, "numbers")
    log.create(1)
    publish(PostgresDriver(dsn=home_dsn, layout=FIRST), 0, 3, [3])
    change(home_dsn, SECOND)
    source = (
        """SET definition = jsonb_set(definition, '{source}', '{"topic": "numbers", """
        """"schema": "n.v1", "event_id": {"field": "id"}, "event_time": "at"}')"""
    )
    with psycopg.connect(home_dsn) as home:
        for table in ("pipeline", "pipeline_version"):
            home.execute(f"UPDATE tallyweir.{table} {source}".encode())
    before = read_database(home_dsn)
    with asking(home_dsn, kafka_bootstrap, tmp_path) as asker:
        asker.open(page, "numbers/steering", Role.OPERATOR)
        rows = _section(page, "Versions").locator("tbody tr")
        expect(rows.first).to_contain_text("2, in force")
        expect(rows.first.get_by_role("button", name="Roll back")).to_have_count(0)
        expect(rows.nth(1)).to_contain_text("needs migration")
        act = ActDialog(page, rows.nth(1).get_by_role("button", name="Roll back"))
        act.try_out("It could be version 3", reason="the value is wrong")
        assert read_database(home_dsn) == before
        act.do("Version 3 is in force after batch 1")
        expect(rows).to_have_count(3)
    versions = "SELECT version, rolls_back_to, made_by FROM tallyweir.pipeline_version"
    newest = query(home_dsn, f"{versions} ORDER BY 1 DESC LIMIT 1")[0]
    assert newest[:2] == (3, 1)
    assert newest[2].startswith("operator.name through ")
    log.delete()


def test_bounds_are_set_and_taken_away_beside_what_was_decided(
    page: Page, steered: _Steered
) -> None:
    """Each decision with the figures that it was made from."""
    with psycopg.connect(steered.dsn) as home:
        home.execute(
            "INSERT INTO tallyweir.scaling_decision (pipeline, epoch, executors, "
            "executors_before, executors_min, executors_max, because, reason, "
            "executors_wanted, executors_there, executor_cores, tasks_max, "
            "connections_max, backlog, backlog_s, arrival_rate, expected_rate, rate, "
            "busy) VALUES (%s, 1, 4, 2, 1, 8, 'backlog', "
            "'4 are needed', 4, 2, 1, 8, 60, 90000, 45, 2500, 2600, 2000, 0.9)",
            (PIPELINE,),
        )
    before = read_database(steered.dsn)
    steered.open(page)
    scaling = _section(page, "Scaling")
    for told in ("2 → 4", "90,000", "45.0 s", "2,500", "90 %", "4 are needed"):
        expect(scaling.locator("tbody tr")).to_contain_text(told)
    act = ActDialog(page, _button(page, "Scaling", "Set bounds"))
    values = {"max_executors": "8", "max_batch": "1000000", "reason": "the sale"}
    act.try_out("executors 1 to 8, offsets of a batch 20,000 to 1,000,000", **values)
    assert read_database(steered.dsn) == before
    act.do("executors 1 to 8")
    bounds = (
        "SELECT executors_max, batch_offsets_max, set_by FROM tallyweir.scaling_bounds"
    )
    ((executors, batch, who),) = steered.query(bounds)
    assert (executors, batch) == (8, 1_000_000)
    assert who.startswith("operator.name through ")
    expect(scaling).to_contain_text("executors 1 to 8")
    act = ActDialog(page, _button(page, "Scaling", "Set bounds"))
    act.box.get_by_label("No bounds").check()
    act.try_out("scaling is off", reason="the sale is over")
    assert len(steered.query(bounds)) == 1
    act.do("scaling is off")
    assert steered.query(bounds) == []


def test_an_event_is_erased_by_an_admin_only(page: Page, steered: _Steered) -> None:
    """With the numbers before, from the list of acts or beside what became of it."""
    before = read_database(steered.dsn)
    steered.open(page, Role.OPERATOR)
    expect(_button(page, "Offsets", "Move offsets")).to_be_visible()
    expect(_button(page, "Acts", "Erase an event")).to_have_count(0)
    page.get_by_role("button", name="leave").click()
    steered.asker.open(page, f"{PIPELINE}/why/0-2", Role.ADMIN)
    act = ActDialog(page, page.get_by_role("button", name="Erase this event"))
    act.try_out(
        "1 row taken out of departures",
        "1 row blanked in duplicate_event",
        "2 positions",
        reason="request 4711",
    )
    assert read_database(steered.dsn) == before
    act.do("1 row taken out of departures", "Keep the receipt apart")
    assert steered.query("SELECT FROM departures WHERE event_id = '0-2'") == []
    expect(page.locator("main .told")).to_contain_text("Erased in act")
    ((kind, _, who),) = steered.query(_ACTS)
    assert (kind, who.split()[0]) == ("erase", "admin.name")
    page.get_by_role("link", name="Steering").click()
    row = _section(page, "Acts").locator("tbody tr")
    expect(row).to_contain_text("departures 1")
    expect(row).not_to_contain_text("0-2")


def test_a_drain_is_asked_for_and_called_off(page: Page, steered: _Steered) -> None:
    """Its state is shown with who asked, until a driver ends it or somebody resumes."""
    before = read_database(steered.dsn)
    steered.open(page)
    act = ActDialog(page, page.locator("#acts button", has_text="Drain"))
    act.try_out("can be drained by its driver", windows="close", reason="we move house")
    assert read_database(steered.dsn) == before
    act.do("to be drained since", "Its driver ends it")
    asked = "SELECT closes_windows, drained_epoch, called_off_at FROM tallyweir.drain"
    assert steered.query(asked) == [(True, None, None)]
    page.get_by_role("link", name="Pipeline", exact=True).click()
    expect(page.locator(".state")).to_have_text("DRAINING")
    expect(page.locator("p.cause")).to_contain_text("we move house")
    act = ActDialog(page, page.locator("#acts button", has_text="Resume"))
    expect(act.told).to_contain_text("to be drained since")
    act.do("It goes on")
    assert steered.query(f"{asked} WHERE called_off_at IS NULL") == []


def test_a_long_act_shows_that_it_is_at_work_and_does_not_keep_the_page(
    page: Page, steered: _Steered
) -> None:
    """Its dialog may be closed; how it ended is told where somebody has gone."""
    steered.open(page)
    act = ActDialog(page, page.locator("#acts button", has_text="Pause"))
    act.try_out("can be paused", reason="airports are loaded")
    with psycopg.connect(steered.dsn) as publisher:
        publisher.execute("SELECT FROM tallyweir.pipeline FOR UPDATE")
        page.keyboard.press("Enter")
        expect(act.told).to_contain_text("At work for")
        page.keyboard.press("Escape")
        page.get_by_role("link", name="Batches").click()
        expect(page.locator("main tbody tr")).to_have_count(3)
        expect(page.locator("#works")).to_contain_text("is at work")
    works = page.locator("#works")
    expect(works).to_contain_text("is paused after batch 3", timeout=15_000)
    works.get_by_role("button", name="Dismiss").click()
    expect(works).to_be_empty()
    assert [kind for kind, *_ in steered.query(_ACTS)] == ["pause"]


def test_an_act_is_done_although_the_browser_went_away(
    browser: Browser, steered: _Steered
) -> None:
    """The list of acts says so to who comes back."""
    page = browser.new_page()
    steered.open(page)
    act = ActDialog(page, page.locator("#acts button", has_text="Pause"))
    act.try_out("can be paused", reason="airports are loaded")
    with psycopg.connect(steered.dsn) as publisher:
        publisher.execute("SELECT FROM tallyweir.pipeline FOR UPDATE")
        page.keyboard.press("Enter")
        expect(act.told).to_contain_text("At work for")
        page.close()
        assert steered.query(_ACTS) == []
    await_row(steered.dsn, "SELECT FROM tallyweir.pause WHERE resumed_at IS NULL")
    page = browser.new_page()
    steered.open(page, None)
    expect(_section(page, "Acts").locator("tbody tr")).to_contain_text("airports")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_steering_fits_a_phone_and_every_number_has_a_formula(
    page: Page, steered: _Steered, scheme: str
) -> None:
    """Without a token nothing but reading is offered."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": 360, "height": 800})
    steered.open(page, None)
    expect(_section(page, "Offsets").locator("tbody tr")).to_have_count(1)
    assert page.locator("main button.act").count() == 0
    assert page.locator("th.number:not(:has(button))").count() == 0
    root = page.locator("html")
    assert root.evaluate("(root) => root.scrollWidth - root.clientWidth") == 0
