"""What a batch has cost is written with it, by whoever staged it."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.driver_world import PIPELINE, DriverWorld, numbered
from integration_tests.harness.measured_pipeline import (
    BY_DRIVER,
    BY_SPARK,
    write_sleeping_transform,
    write_totals,
)
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    layout_of,
    query,
)
from integration_tests.harness.transforming_pipeline import (
    write_transforming_pipeline,
)
from tallyweir.sinks.postgres.audit import read_reported
from tallyweir.sinks.postgres.publish import publish_transaction
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.measures import Measures, age_bucket, middle_age_s

_DEDUPLICATED = (
    PIPELINE
    + """
    deduplicate: {{horizon: 7 days}}
"""
)
_REPORTING = """
    count("seen", events.num_rows)
    for amount in events["amount"].to_pylist():
        observe("amount", amount)
"""


def _measures(world: DriverWorld) -> list[dict[str, Any]]:
    found = world.fetch(
        "SELECT measures FROM tallyweir.batch_measures ORDER BY sequence"
    )
    return [measures for (measures,) in found]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "staged_by",
    [
        pytest.param(BY_DRIVER, id="driver", marks=pytest.mark.long),
        pytest.param(BY_SPARK, id="spark"),
    ],
)
def test_each_step_tells_its_seconds_and_rows(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, staged_by: dict[str, str]
) -> None:
    """The rows are those of the ledger, and no second counts for two steps."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_DEDUPLICATED)
    repeated = numbered(world, 0, 60)
    world.topic.send([*repeated, *repeated[:10]])
    world.run_to_the_end(batch=35, environment=staged_by)
    measures = _measures(world)
    assert len(measures) == world.value("SELECT count(*) FROM tallyweir.batch") > 1
    steps = [one["steps"] for one in measures]
    assert sum(one["read"]["rows_out"] for one in steps) == 70
    assert sum(one["decode"]["rows_in"] for one in steps) == 70
    # Of committed events the age, of all IDs what looking them up took.
    assert sum(sum(one.get("ages", {}).values()) for one in measures) == 60
    # Repeats beside their firsts are one ID of a question.
    assert 60 <= sum(one["ids"]["asked"] for one in measures) <= 70
    assert all(one["ids"].keys() == {"asked", "looked_up", "met"} for one in measures)
    assert sum(one["deduplicate"]["rows_in"] for one in steps) == 70
    assert sum(one["deduplicate"].get("rows_out", 0) for one in steps) == 60
    assert sum(one["copy"]["rows_out"] for one in steps) >= 70
    for one in measures:
        seconds = one["seconds"]
        assert {"between", "plan", "stage", "wait", "publish"} <= seconds.keys()
        parts = [s for name, s in seconds.items() if name.startswith("publish_")]
        assert 0 < sum(parts) <= seconds["publish"]
        task_s = sum(one["task_seconds"])
        of_steps = sum(s["seconds"] for n, s in one["steps"].items() if n != "read")
        assert 0 < of_steps <= task_s
        assert ("tasks" in one["cpu_seconds"]) == (staged_by is BY_SPARK)
        assert one["cpu_seconds"]["driver"] > 0
        assert one["wal_bytes"] > 0
        assert one["slots"] >= 1
    # The first has none before it.
    assert [("commit_before" in one["seconds"]) for one in measures[:2]] == [
        False,
        True,
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_transforms_python_is_told_apart(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """It runs beneath the tasks that stage; workers that begin do not count."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    write_sleeping_transform(world, 0.01)
    world.topic.send(numbered(world, 0, 100))
    world.run_to_the_end()
    (measures,) = _measures(world)
    transform = measures["steps"]["transform"]
    assert 1.0 <= transform["seconds"] < 5.0
    assert transform["rows_out"] == 100


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_what_a_transform_reports_counts_once_although_it_runs_again(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Of the events that are committed: repeats of them add nothing."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.pipeline_file = tmp_path / "readings.py"
    write_transforming_pipeline(
        world,
        world.pipeline_file,
        'return events.withColumns({"big": F.expr("amount > 9"), '
        '"half": F.expr("amount / 2")})',
        reported='counters={"big_ones": "big", "amounts": "amount"}, '
        'distributions={"halves": "half"}',
    )
    readings = numbered(world, 0, 50)
    world.topic.send([*readings, *readings])
    with world.driver(fault="after:voted:1:SIGKILL") as driver:
        assert driver.wait() == -signal.SIGKILL
    world.run_to_the_end()
    with connect(home_dsn, application_name="test reader") as home:
        custom, _ = read_reported(home, "readings", newest=100)
    assert custom.counts == {"big_ones": 40, "amounts": sum(range(50))}
    halves = custom.distributions["halves"]
    assert (halves.count, halves.greatest) == (50, 24.5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_what_functions_report_counts_once_although_it_runs_again(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The driver dies when the functions' votes are in, and nothing is committed."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    write_totals(world, _REPORTING)
    world.topic.send(numbered(world, 0, 50))
    with world.driver(fault="after:keys_voted:1:SIGKILL") as driver:
        assert driver.wait() == -signal.SIGKILL
    assert world.value("SELECT count(*) FROM tallyweir.batch_measures") == 0
    world.run_to_the_end()
    with connect(home_dsn, application_name="test reader") as home:
        custom, hot_keys = read_reported(home, "readings", newest=100)
    assert custom.counts == {"seen": 50}
    assert custom.distributions["amount"].count == 50
    assert custom.distributions["amount"].greatest == 49
    (hot,) = hot_keys
    assert (hot.output, hot.events, hot.share) == ("totals", 50, 1.0)
    # Nobody said that keys may be shown.
    assert hot.key.startswith("#")


def test_measures_of_old_batches_make_room_for_new_ones(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger keeps all batches, and the measures of the newest."""
    monkeypatch.setattr(publish_transaction, "MEASURES_KEPT", 2)
    layout = layout_of(append_table("numbers", n="bigint"))
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    for number in range(4):
        driver.append([(number,)])
    kept = query(home_dsn, "SELECT sequence FROM tallyweir.batch_measures ORDER BY 1")
    assert kept == [(3,), (4,)]
    assert query(home_dsn, "SELECT count(*) FROM tallyweir.batch") == [(4,)]


def test_a_batch_that_is_not_decided_leaves_no_measures(home_dsn: str) -> None:
    """They are written by its own transaction, and a batch told again is not added."""
    layout = layout_of(append_table("numbers", n="bigint"))
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    plan = driver.plan(1)
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, [(1,)])})
    with driver.home.open_publish_transaction(plan, tally, restagings=0) as opened:
        opened.move_rows()
    count = "SELECT count(*) FROM tallyweir.batch_measures"
    assert query(home_dsn, count) == [(0,)]
    for _ in range(2):
        driver.publish(plan, tally)
        assert query(home_dsn, count) == [(1,)]


def test_ages_are_those_right_before_the_commit(home_dsn: str) -> None:
    """A task counts them as of the plan; the batch is older when it is committed."""
    layout = layout_of(append_table("numbers", n="bigint"))
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    planned = driver.home.read_clock_us() - 5_000_000
    plan = replace(driver.plan(1), planned_at_us=planned)
    staged = driver.stage(plan, {"output_0": driver.positioned(plan, [(1,)])})
    tally = replace(staged, measures=Measures(ages={age_bucket(1.0): 3}))
    driver.publish(plan, tally)
    ((ages,),) = query(
        home_dsn, "SELECT measures -> 'ages' FROM tallyweir.batch_measures"
    )
    ((bucket, events),) = ages.items()
    assert events == 3
    assert 5.4 < middle_age_s(int(bucket)) < 60
