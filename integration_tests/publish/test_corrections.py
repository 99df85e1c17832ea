"""What an upsert takes out of a table, on a real server and without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    Row,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.staging.corrections import CORRECTION
from tallyweir.sinks.protocol.batch_run import BatchRun, Disposition, RunInput
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.ports import BatchPlan

_ROWS = "SELECT id, amount FROM numbers ORDER BY kafka_offset"
_REPLACED = (
    "SELECT output_table, kafka_topic, kafka_partition, kafka_offset, sequence, "
    "event_id FROM tallyweir.replaced_row ORDER BY kafka_offset"
)
_RUN = BatchRun(
    name="fix",
    inputs=(RunInput(partition=0, name="fix.csv", checksum="aa"),),
    disposition=Disposition.UPSERT,
)


def _layout(kind: str) -> PipelineLayout:
    layout = layout_of(append_table("numbers", id=kind, amount="bigint"))
    return replace(layout, corrected_by=Column(name="id", postgres_type=kind))


def _plan(driver: PostgresDriver, length: int) -> BatchPlan:
    return replace(driver.plan(length), run=_RUN)


@pytest.mark.parametrize(
    ("kind", "of_table", "ids"),
    [
        ("bigint", "bigint", [1, 2, 3]),
        ("bigint", "text", [1, 2, 3]),
        ("text", "varchar(9)", ["a", "b", "c"]),
        ("bytea", "bytea", [b"\x01", b"\x02", b"\x03"]),
    ],
)
def test_rows_make_place_whatever_type_their_table_has_for_the_id(
    home_dsn: str, kind: str, of_table: str, ids: list[object]
) -> None:
    """A key on the ID holds throughout; attempts that did not vote take nothing."""
    execute(
        home_dsn,
        f"CREATE TABLE numbers (id {of_table} PRIMARY KEY, amount bigint, "
        "kafka_topic text, kafka_partition int, kafka_offset bigint)",
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_layout(kind))
    driver.append([(one, 0) for one in ids])
    before: list[Row] = query(home_dsn, _ROWS)
    plan = _plan(driver, 1)
    driver.stage_rows(CORRECTION, [(ids[0], "0", False)], attempt=70)
    staged = {
        "output_0": driver.positioned(plan, [(ids[1], 5)]),
        CORRECTION: [(ids[1], "second", False)],
    }

    driver.publish(plan, driver.stage(plan, staged))

    assert [before[0], before[2], (before[1][0], 5)] == query(home_dsn, _ROWS)
    assert [("numbers", "numbers", 0, 1, 2, "second")] == query(home_dsn, _REPLACED)


def test_a_batch_whose_corrections_were_lost_is_not_published(home_dsn: str) -> None:
    """A crash of the server empties staging; the rows would stand beside the old."""
    driver = PostgresDriver(dsn=home_dsn, layout=_layout("bigint"))
    driver.append([(1, 0), (2, 0)])
    plan = _plan(driver, 1)
    rows = {
        "output_0": driver.positioned(plan, [(1, 5)]),
        CORRECTION: [(1, "1", False)],
    }
    tally = driver.stage(plan, rows)
    table = driver.staging_table(CORRECTION).as_string(None)
    execute(home_dsn, f"TRUNCATE {table}")

    with pytest.raises(RetryableError, match="STAGED_ROWS_MISSING"):
        driver.publish(plan, tally)
    assert [(1, 0), (2, 0)] == query(home_dsn, _ROWS)

    driver.publish(plan, driver.stage(plan, rows))
    assert [(2, 0), (1, 5)] == query(home_dsn, _ROWS)


def test_a_position_that_was_put_back_by_hand_goes_again(home_dsn: str) -> None:
    """It is noted once; who compares rows and notes finds nothing missing."""
    driver = PostgresDriver(dsn=home_dsn, layout=_layout("bigint"))
    driver.append([(1, 0)])
    for name in ("fix", "fix-again"):
        plan = replace(_plan(driver, 1), run=replace(_RUN, name=name))
        rows = driver.positioned(plan, [(1, 5)])
        staged = {"output_0": rows, CORRECTION: [(1, "1", False)]}
        driver.publish(plan, driver.stage(plan, staged))
        execute(home_dsn, "INSERT INTO numbers VALUES (1, 0, 'numbers', 0, 0)")
    execute(home_dsn, "DELETE FROM numbers WHERE kafka_offset = 0")
    assert [(1, 5)] == query(home_dsn, _ROWS)
    offsets = [row[3:5] for row in query(home_dsn, _REPLACED)]
    assert [(0, 2), (1, 3)] == offsets
