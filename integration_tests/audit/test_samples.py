"""The newest rows of each step are committed with their batch, redacted by rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from integration_tests.harness.driver_world import SOURCE, DriverWorld, numbered
from integration_tests.harness.keyed_pipeline import write_python_pipeline
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    layout_of,
    query,
)
from integration_tests.harness.readings import Sent, sent
from integration_tests.harness.whole_database import places_of
from tallyweir.services.cli.app import build_app
from tallyweir.sinks.postgres.audit import KeptSample, read_reported, read_samples
from tallyweir.sinks.postgres.publish.publish_transaction import (
    PostgresPublishTransaction,
)
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import FencedError
from tallyweir.sinks.protocol.samples import SampledRow, Samples, StepSample
from tallyweir.sinks.protocol.votes import BatchTally

_SECRET = "nobody-may-see-this"
_PIPELINE = (
    SOURCE
    + """
    monitor: {{show_keys: true, samples: 2, redact: [site]}}
    outputs:
      - append: {{table: readings}}
      - window:
          table: by_sensor
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), last_site: max(site)}}
"""
)
_KEYED = """
from datetime import timedelta
from tallyweir import (
    Append, Monitoring, Pipeline, Source, ValueState, stateful,
)


@stateful(
    table="totals",
    key=["sensor"],
    columns={{"total": "bigint"}},
    state={{"total": ValueState(0)}},
)
def totals(key, events, state, timers, watermark):
    state["total"].value += events.num_rows
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
    monitor=Monitoring(samples=2),
    outputs=(Append(table="readings", columns=("event_id",)), totals),
)
"""


def _kept(dsn: str, pipeline: str = "readings") -> dict[str, KeptSample]:
    with connect(dsn, application_name="test reader") as home:
        found = read_samples(home, pipeline)
    return {" ".join(filter(None, (one.step, one.output))): one for one in found.steps}


def _hot_keys(dsn: str, *, newest: int) -> set[str]:
    with connect(dsn, application_name="test reader") as home:
        _, found = read_reported(home, "readings", newest=newest)
    return {one.key for one in found}


def _offsets(sample: KeptSample) -> list[tuple[int, int | None]]:
    return [(row.place.partition, row.offset) for row in sample.rows if row.place]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_driver_keeps_the_last_rows_of_each_step_without_what_is_redacted(
    tmp_path: Path,
    kafka_bootstrap: str,
    home_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until another version hides otherwise; that one's first batch brings others."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    good = [
        sent(world.contract, event_id=f"n{n}", site=_SECRET, partition=n % 2)
        for n in range(20)
    ]
    world.topic.send([*good, good[0], Sent(value=_SECRET.encode(), partition=1)])
    world.run_to_the_end()

    # Results and windows have it, and of our tables the dead letter, in its payload.
    found = places_of(home_dsn, _SECRET)
    assert {"public.readings", "public.by_sensor"} <= found
    assert {one for one in found if one.startswith("tallyweir.")} == {
        "tallyweir.dead_letter"
    }
    kept = _kept(home_dsn)
    assert list(kept) == [
        *("decode", "validate", "dead", "deduplicate", "duplicate"),
        *("stage by_sensor", "stage readings"),
    ]
    decoded = kept["decode"]
    assert decoded.redacted == ("site",)
    assert len(decoded.rows) == 2
    names = [name for name, _ in decoded.rows[0].fields]
    # Those too that no output reads.
    assert names == ["sensor", "event_id", "at", "amount", "grade", "divisor"]
    assert _offsets(kept["duplicate"]) == [(0, 10)]
    (dead,) = kept["dead"].rows
    assert (dead.reason, dead.fields) == ("BAD_MAGIC", ())
    assert kept["stage by_sensor"].redacted == ("last_site",)
    assert dict(kept["stage by_sensor"].rows[0].fields)["events"]
    assert _hot_keys(home_dsn, newest=100) == {'["s1"]'}

    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)
    told = CliRunner().invoke(build_app(), ["samples", "readings", "--step", "dead"])
    assert f"{world.topic.name}[1] 10 BAD_MAGIC" in told.output

    world.write_pipeline(_PIPELINE.replace("redact: [site]", "redact: [sensor]"))
    world.run_to_the_end()
    assert _kept(home_dsn) == {}
    world.topic.send(numbered(world, 100, 4))
    world.run_to_the_end()
    assert _kept(home_dsn)["stage by_sensor"].redacted == ("sensor",)
    assert all(key.startswith("#") for key in _hot_keys(home_dsn, newest=1))
    world.assert_verified()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rows_that_functions_return_are_kept_with_what_they_were_given(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """By Spark's tasks, of which each gives a share."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    write_python_pipeline(world, _KEYED)
    world.topic.send(numbered(world, 0, 30))
    world.run_to_the_end(environment={"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0"})
    kept = _kept(home_dsn)
    # Tasks end in no fixed order, and their shares are joined as they come.
    assert sorted(_offsets(kept["decode"])) == [(0, 14), (1, 14)]
    assert sorted(_offsets(kept["stage totals"])) == [(0, 14), (1, 14)]
    assert [dict(row.fields) for row in kept["keys totals"].rows] == [
        {"sensor": "s1", "total": "30"}
    ]


def _sampled(tally: BatchTally, *steps: str, text: str = "x") -> BatchTally:
    row = SampledRow(fields=(("n", text),))
    taken = tuple(StepSample(step=step, rows=(row,)) for step in steps)
    return replace(tally, samples=Samples(limit=1, steps=taken))


def _rows(dsn: str) -> list[tuple[Any, ...]]:
    return query(dsn, "SELECT step, sequence FROM tallyweir.sample ORDER BY step")


def test_a_batch_that_is_not_decided_leaves_no_sample(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails before its COMMIT; and of a fenced driver there is none."""
    driver = PostgresDriver(
        dsn=home_dsn, layout=layout_of(append_table("numbers", n="bigint"))
    )
    plan = driver.plan(1)
    staged = {"output_0": driver.positioned(plan, [(1,)])}
    tally = _sampled(driver.stage(plan, staged), "decode")
    with monkeypatch.context() as broken:

        def fail(_transaction: PostgresPublishTransaction) -> None:
            raise RuntimeError("at the last moment")

        broken.setattr(PostgresPublishTransaction, "_write_measures", fail)
        with pytest.raises(RuntimeError):
            driver.publish(plan, tally)
    assert _rows(home_dsn) == []
    for _ in range(2):
        driver.publish(plan, tally)
        assert _rows(home_dsn) == [("decode", 1)]

    next_plan = driver.plan(1)
    staged = {"output_0": driver.positioned(next_plan, [(2,)])}
    next_tally = _sampled(driver.stage(next_plan, staged), "decode", "stage")
    PostgresDriver(dsn=home_dsn, layout=driver.layout)
    with pytest.raises(FencedError):
        driver.publish(next_plan, next_tally)
    assert _rows(home_dsn) == [("decode", 1)]


def test_of_each_step_the_last_batch_that_had_rows_is_kept(home_dsn: str) -> None:
    """So the table does not grow, and a sample goes with its batch."""
    driver = PostgresDriver(
        dsn=home_dsn, layout=layout_of(append_table("numbers", n="bigint"))
    )
    for number, steps in enumerate((("decode", "dead"), ("decode",), ("decode",))):
        plan = driver.plan(1)
        staged = {"output_0": driver.positioned(plan, [(number,)])}
        tally = _sampled(driver.stage(plan, staged), *steps, text=str(number))
        driver.publish(plan, tally)
    assert _rows(home_dsn) == [("dead", 1), ("decode", 3)]
    kept = _kept(home_dsn, driver.layout.pipeline)
    assert kept["decode"].rows[0].fields == (("n", "2"),)
    with connect(home_dsn, application_name="test owner") as home:
        for table in ("batch_partition", "batch_output", "batch"):
            home.execute(f"DELETE FROM tallyweir.{table} WHERE sequence = 1")
        home.commit()
    assert _rows(home_dsn) == [("decode", 3)]
