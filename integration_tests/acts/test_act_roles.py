"""Acts through the monitor are for who has the role, and not without a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.page_asker import PageAsker, asking
from integration_tests.harness.whole_database import read_database
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.monitor.acts import ACTS
from tallyweir.services.monitor.tokens import Role

_GIVEN = {
    "version": "1",
    "windows": "keep",
    "to_offset": "orders:0=2",
    "name": "before-v2",
    "id": "0-2",
    "new": "departures-2",
    "fork": "departures-2",
    "max_executors": "8",
}


@pytest.fixture
def asker(
    home_dsn: str, kafka_bootstrap: str, scenario: LedgerScenario, tmp_path: Path
) -> Iterator[PageAsker]:
    """A monitor with a token of each role."""
    assert scenario.sequence == 3
    with asking(home_dsn, kafka_bootstrap, tmp_path) as asked:
        yield asked


def test_an_act_needs_its_role_and_a_reason_and_then_changes_nothing(
    asker: PageAsker, home_dsn: str
) -> None:
    """Neither in a dry run nor in earnest."""
    before = read_database(home_dsn)
    order = list(Role)
    for name, act in ACTS.items():
        asked = {one.name for one in act.fields}
        given = {key: value for key, value in _GIVEN.items() if key in asked}
        for role in order[: order.index(act.role)]:
            for dry_run in (True, False):
                answer = asker.post(
                    PIPELINE, name, role, dry_run=dry_run, reason="x", **given
                )
                code = answer.status_code, answer.json()["code"]
                assert code == (403, "ROLE_MISSING"), (name, role)
        for reason in ("", "  ") if "reason" in asked else ():
            answer = asker.post(
                PIPELINE, name, act.role, dry_run=False, reason=reason, **given
            )
            code = answer.status_code, answer.json()["code"]
            assert code == (409, "REASON_MISSING"), name
    assert read_database(home_dsn) == before


def test_a_role_is_told_of_the_acts_that_it_may_do(asker: PageAsker) -> None:
    """So the page has no button that is refused."""
    told = {}
    for role, token in asker.tokens.items():
        answer = asker.client.get(
            "/api/access", headers={"authorization": f"Bearer {token}"}
        )
        told[role] = {act["name"] for act in answer.json()["acts"]}
    assert told[Role.VIEWER] == set()
    assert told[Role.ADMIN] - told[Role.OPERATOR] == {"erase", "discard"}
    assert told[Role.ADMIN] == set(ACTS)


def test_rows_in_which_a_fork_differs_are_not_for_everybody(asker: PageAsker) -> None:
    """They hold what producers have sent; what forks there are is."""
    path = f"/api/pipelines/{PIPELINE}/diff/departures-2"
    assert asker.client.get(path).status_code == 401
    token = asker.tokens[Role.VIEWER]
    answer = asker.client.get(path, headers={"authorization": f"Bearer {token}"})
    assert answer.json()["code"] == "PIPELINE_UNKNOWN"
    steering = asker.client.get(f"/api/pipelines/{PIPELINE}/steering")
    assert steering.json()["forks"] == []
