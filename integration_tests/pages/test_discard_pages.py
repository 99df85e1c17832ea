"""A fork is discarded on the page of the pipeline in front."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import Page, expect
from psycopg.rows import TupleRow

from integration_tests.harness.discarded_fork import FORK, add_own_tables, fork
from integration_tests.harness.page_asker import ActDialog, PageAsker, asking
from integration_tests.harness.postgres_driver import query
from integration_tests.harness.readings import Sent
from integration_tests.harness.whole_database import read_database
from integration_tests.harness.written_topic import WrittenTopic
from integration_tests.ledger_scenario import PIPELINE, TOPIC, LedgerScenario
from tallyweir.services.monitor.tokens import Role
from tallyweir.sinks.kafka_admin import KafkaAdmin

_STEERING = f"{PIPELINE}/steering"
_NOTE = "SELECT pipeline, front, reason, discarded_by FROM tallyweir.discarded_pipeline"


@pytest.fixture
def asker(
    home_dsn: str,
    kafka_bootstrap: str,
    connection: psycopg.Connection[TupleRow],
    tmp_path: Path,
) -> Iterator[PageAsker]:
    """A pipeline of one batch, whose topic is there, and its fork."""
    log = WrittenTopic(kafka_bootstrap, TOPIC)
    log.create(1)
    log.send([Sent(value=b"%d" % number) for number in range(4)])
    LedgerScenario(connection=connection).register(p0=0).publish({0: "CCCD"})
    add_own_tables(connection)
    ((_, topic),) = KafkaAdmin(kafka_bootstrap, TOPIC).read_positions().items()
    connection.execute(
        "UPDATE tallyweir.partition_progress SET topic_id = %s", (topic.topic_id,)
    )
    connection.commit()
    fork(connection)
    with asking(home_dsn, kafka_bootstrap, tmp_path) as asked:
        yield asked
    log.delete()


def test_a_fork_is_discarded_by_an_admin_only(
    page: Page, asker: PageAsker, home_dsn: str
) -> None:
    """After a dry run that tells what goes with it; then it is on no page any more."""
    before = read_database(home_dsn)
    asker.open(page, _STEERING, Role.OPERATOR)
    forks = page.get_by_role("region", name="Forks")
    row = forks.locator("tbody tr")
    expect(row.get_by_role("button", name="Switch")).to_be_visible()
    expect(row.get_by_role("button", name="Discard")).to_have_count(0)
    page.get_by_role("button", name="leave").click()
    asker.open(page, _STEERING, Role.ADMIN)
    act = ActDialog(page, row.get_by_role("button", name="Discard"))
    act.try_out(
        f"in the shadow of {PIPELINE}",
        "3 rows of departures__departures_2",
        reason="half hours are too fine",
    )
    assert before == read_database(home_dsn)
    act.do("Its driver ends by itself")
    expect(forks).to_contain_text("No forks")
    ((*told, who),) = query(home_dsn, _NOTE)
    assert told == [FORK, PIPELINE, "half hours are too fine"]
    assert who.startswith("admin.name through ")
    answer = asker.client.get(f"/api/pipelines/{FORK}/steering")
    code = answer.status_code, answer.json()["code"]
    assert code == (404, "PIPELINE_DISCARDED")
