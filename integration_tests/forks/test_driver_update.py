"""An update of the running page-views, with windows open, keeps every count."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from integration_tests.harness.command import run_command
from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import Sent
from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import load_contract
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
)
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SHIPPED = Path(__file__).parents[2] / "spark_jobs" / "pipelines" / "page-views.yaml"
_FORMER = "aggregate: {views: count(*), value: sum(value)}"
_NEW = "aggregate: {highest: max(value), value: sum(value), views: count(*)}"
_BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
_VIEWS = 1_800
#: Between two views: five minutes of them are sent before the update.
_STEP = timedelta(seconds=1 / 3)
_WINDOWS = """
SELECT window_start, page, country, views, value::bigint, highest::bigint
FROM page_views_by_minute
"""

_Group = tuple[datetime, str, str]


def _view(number: int) -> dict[str, object]:
    return {
        "event_id": f"view {number}",
        "user_id": number % 11,
        "page": f"/{number % 3}",
        "country": ("DE", "FR")[number % 2],
        "viewed_at": _BEGIN + number * _STEP,
        "value": float(number % 97),
    }


def _sent(first: int, end: int) -> list[Sent]:
    contract = load_contract("page_view.v1")
    return [
        Sent(value=encode(contract, _view(number)), partition=number % 2)
        for number in range(first, end)
    ]


def _undisturbed() -> dict[_Group, tuple[int, int, int]]:
    """Count what was sent: views, their value, and the highest."""
    values: dict[_Group, list[int]] = defaultdict(list)
    for number in range(_VIEWS):
        view = _view(number)
        at = view["viewed_at"]
        assert isinstance(at, datetime)
        minute = at.replace(second=0, microsecond=0)
        group = (minute, str(view["page"]), str(view["country"]))
        values[group].append(number % 97)
    return {group: (len(each), sum(each), max(each)) for group, each in values.items()}


@pytest.mark.long
def test_an_update_of_running_page_views_keeps_every_count(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Windows that had begun keep what they counted, and know no more than that."""
    share_fetched(tmp_path)
    variables = {
        KAFKA_VARIABLE: kafka_bootstrap,
        HOME_DSN_VARIABLE: home_dsn,
        STATE_DIRECTORY_VARIABLE: str(tmp_path),
    }
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    shipped = _SHIPPED.read_text("utf-8")
    former = shipped.replace("topic: page-views", f"topic: {world.topic.name}")
    world.pipeline_file.write_text(former)
    half = _VIEWS // 2
    world.topic.send(_sent(0, half))
    with world.driver(batch=200) as driver:
        world.await_read(half)
        begun = world.value("SELECT max(window_start) FROM page_views_by_minute")
        assert world.value("SELECT count(*) FROM page_views_by_minute WHERE NOT final")
        assert _FORMER in former
        world.pipeline_file.write_text(former.replace(_FORMER, _NEW))
        plan = run_command(
            *("plan", str(world.pipeline_file), "--json"), variables=variables, code=1
        )
        assert json.loads(plan)["verdict"] == "needs migration"
        told = run_command(
            *("update", str(world.pipeline_file), "--reason", "the highest value"),
            variables=variables,
        )
        assert "Version 2 of page-views is in force" in told
        world.topic.send(_sent(half, _VIEWS))
        assert driver.wait() == 78, driver.text
        assert "VERSION_SUPERSEDED" in driver.text
    world.run_to_the_end(batch=200)
    found = {tuple(row[:3]): tuple(row[3:]) for row in world.fetch(_WINDOWS)}
    assert found == {
        group: (views, value, highest if group[0] > begun else None)
        for group, (views, value, highest) in _undisturbed().items()
    }
    world.assert_verified("page-views")
    # The way back, from what the ledger keeps.
    run_command("rollback", "page-views", "1", "--reason=back", variables=variables)
    kept = run_command("versions", "page-views", "--show=1", variables=variables)
    world.pipeline_file.write_text(kept)
    world.run_to_the_end()
    listed = run_command("versions", "page-views", variables=variables)
    assert ["3 *", "2", "1"] == [
        " ".join(line.split()[: 1 + ("*" in line)]) for line in listed.splitlines()[1:]
    ]
