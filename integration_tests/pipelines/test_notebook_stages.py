"""The stages of a slice are those of a driver, and one that runs does not notice."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.keyed_pipeline import write_python_pipeline
from integration_tests.harness.noted_slice import noted
from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

#: A transform, an output in another database, and a function with state and timers.
_PIPELINE = """
from datetime import timedelta
from pyspark.sql import functions as F
from tallyweir import (
    Append, Pipeline, Source, ValueState, stateful,
)


def transform(events):
    return events.withColumn("doubled", F.col("amount") * 2)


@stateful(
    table="totals",
    key=["sensor"],
    columns={{"total": "bigint"}},
    state={{"total": ValueState(0)}},
)
def totals(key, events, state, timers, watermark):
    for number in events["amount"].to_pylist():
        state["total"].value += number
        yield {{"total": state["total"].value}}


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    transform=transform,
    outputs=(
        Append(table="readings"),
        Append(table="billed", databases=("billing",), where="amount > 4"),
        totals,
    ),
)
"""

_PROGRAM = """
import json, sys
from tallyweir import open_slice
with open_slice(sys.argv[1]).stages() as stages:
    last = stages.spark_frame(sys.argv[2])
    published = stages.dry_publish()
    compared = stages.compare_with_committed()
    print(json.dumps({
        "columns": last.columns,
        "outcomes": stages.deduplicated()["outcome"].value_counts().to_dict(),
        "staged": {t: len(rows) for t, rows in stages.outputs().items()},
        "tables": {t: len(rows) for t, rows in published.tables.items()},
        "verified": published.receipt.is_verified,
        "summary": compared.summary.to_dict("index"),
        "verdicts": compared.records["verdict"].value_counts().to_dict(),
        "notes": compared.notes,
    }))
"""


@pytest.fixture
def world(tmp_path: Path, kafka_bootstrap: str, home_dsn: str) -> DriverWorld:
    """A topic and a home."""
    return DriverWorld(tmp_path, kafka_bootstrap, home_dsn)


@pytest.mark.long
def test_a_running_driver_does_not_notice_a_dry_publish(
    world: DriverWorld, billing_dsn: str
) -> None:
    """Nor does what it has committed differ: in two databases, and by a function."""
    write_python_pipeline(world, _PIPELINE)
    # Of copies that tasks meet at the same time any may be kept, so there are none.
    world.topic.send(numbered(world, 0, 20))
    databases = {"billing": billing_dsn}
    environment = {DATABASES_VARIABLE: json.dumps(databases)}
    with world.driver(environment=environment) as driver:
        world.await_read(20)
        found = noted(
            world, _PROGRAM, "transform", which=["--records=100"], databases=databases
        )
        assert found["columns"][-1] == "doubled"
        assert {"alive": 20} == found["outcomes"]
        assert {"readings": 20, "billed": 15, "totals": 20} == found["staged"]
        assert found["staged"] == found["tables"]
        assert found["verified"]
        every = {"missing": 0, "extra": 0, "different": 0}
        assert {
            "billed": {"equal": 15, **every},
            "readings": {"equal": 20, **every},
            "totals": {"equal": 0, **every},
        } == found["summary"]
        assert {"equal": 20} == found["verdicts"]
        world.topic.send(numbered(world, 20, 4))
        world.await_read(24)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert [(1,)] == world.fetch("SELECT epoch FROM tallyweir.epoch_claim")
    assert [(1,)] == world.fetch("SELECT DISTINCT epoch FROM tallyweir.batch")


@pytest.mark.long
def test_rows_of_a_file_are_compared_with_their_batch_run(world: DriverWorld) -> None:
    """By the name of the run; a row that does not fit is dead in both."""
    file = world.directory / "rows.csv"
    file.write_text(
        "sensor,event_id,at,amount,site,grade,divisor\n"
        "s1,a,2024-05-01T12:00:00Z,1,,LOW,1\n"
        "s1,b,2024-05-01T12:00:01Z,many,,LOW,1\n"
        "s1,a,2024-05-01T12:00:00Z,1,,LOW,1\n"
    )
    world.run_batch("filed", file)
    which = (f"--input={file}", "--run=filed")
    found = noted(world, _PROGRAM, "decode", which=which)
    assert {"alive": 1, "dead": 1, "duplicate": 1} == found["outcomes"]
    assert {"equal": 3} == found["verdicts"]
    assert found["summary"]["readings"]["equal"] == 1
    assert found["verified"]
