"""A kind of output can be one module, as ``harness.batch_totals`` is.

``docs/architecture.md`` lists the parts that it has.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.batch_totals import BatchTotals
from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.postgres_driver import (
    PIPELINE,
    TP,
    PostgresDriver,
    execute,
    layout_of,
    query,
)
from integration_tests.harness.sharded_numbers import stop, with_definition
from integration_tests.ledger_scenario import check_of, failed
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.steering import (
    ActRequest,
    diff,
    fork,
    restore,
    take_snapshot,
)
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.sinks.testing.planned_batches import TOPIC_ID

_TOTALS = BatchTotals(
    table="totals",
    staging_table="output_0",
    number=Column(name="number", postgres_type="bigint"),
)
_LAYOUT: PipelineLayout = with_definition(
    layout_of(_TOTALS), [{"kind": _TOTALS.kind.name, "table": _TOTALS.table}]
)
_TOTALS_BY_BATCH = "SELECT total, tallyweir_sequence FROM totals ORDER BY 2"
_FORK = "numbers-2"


@pytest.fixture(autouse=True)
def _known_to_the_ledger(home_dsn: str) -> None:
    """Let the ledger know the kind, as a migration does for those of the product."""
    execute(
        home_dsn,
        "ALTER TABLE tallyweir.batch_output DROP CONSTRAINT batch_output_kind_check",
    )


def test_a_new_kind_is_created_staged_published_and_verified(
    connection: psycopg.Connection[TupleRow], home_dsn: str
) -> None:
    """A row that was changed by hand is found too."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert driver.append([(1,), (2,)]) is PublishOutcome.COMMITTED
    assert driver.append([(40,)]) is PublishOutcome.COMMITTED
    assert driver.append([]) is PublishOutcome.COMMITTED
    stop(driver)
    assert query(home_dsn, _TOTALS_BY_BATCH) == [(3, 1), (40, 2)]
    receipt = verify(connection, PIPELINE, {})
    assert failed(receipt) == {}
    assert check_of(receipt, "row_values").checked == 2
    execute(home_dsn, "UPDATE totals SET total = 4 WHERE total = 3")
    assert list(failed(verify(connection, PIPELINE, {}))) == ["row_values"]


def test_a_new_kind_goes_back_to_a_snapshot(home_dsn: str) -> None:
    """Its rows of later batches go, and the same events come again once."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append([(1,), (2,)])
    with psycopg.connect(home_dsn) as home:
        take_snapshot(home, PIPELINE, "before", reason="a test")
    driver.append([(40,)])
    with psycopg.connect(home_dsn) as home:
        broker = BrokerPosition(
            topic_id=TOPIC_ID, log_start_offset=0, log_end_offset=1000
        )
        restored = restore(home, PIPELINE, "before", {TP: broker}, reason="a test")
        assert restored.rows["totals"] == 1
        assert failed(verify(home, PIPELINE)) == {}
    stop(driver)
    assert query(home_dsn, _TOTALS_BY_BATCH) == [(3, 1)]
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append([(40,)])
    stop(driver)
    assert [total for total, _ in query(home_dsn, _TOTALS_BY_BATCH)] == [3, 40]
    with psycopg.connect(home_dsn) as home:
        assert failed(verify(home, PIPELINE)) == {}


def test_a_fork_has_the_rows_of_a_new_kind(home_dsn: str) -> None:
    """In a table of its own, which is compared with the pipeline's."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append([(1,), (2,)])
    stop(driver)
    with psycopg.connect(home_dsn) as home:
        act = ActRequest(pipeline=PIPELINE, kind="fork", reason="a test")
        forked = fork(home, act, _FORK)
        assert forked.rows == {forked.shadows["totals"]: 1}
        (compared,) = diff(home, PIPELINE, _FORK)
        home.rollback()
        assert failed(verify(home, _FORK)) == {}
    assert (compared.equal, compared.is_equal) == (1, True)
    assert query(home_dsn, f"SELECT total FROM {forked.shadows['totals']}") == [(3,)]


def test_staged_rows_of_a_new_kind_that_are_gone_are_staged_again(
    home_dsn: str,
) -> None:
    """As after a crash of the server, which empties staging."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(1)
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, [(1,)])})
    execute(home_dsn, f"TRUNCATE {driver.staging_table('output_0').as_string()}")
    with pytest.raises(RetryableError, match="STAGED_ROWS_MISSING"):
        driver.publish(plan, tally)


_PIPELINE = """
from datetime import timedelta
from integration_tests.harness.batch_totals import TotalOutput
from tallyweir import Append, Pipeline, Source

pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    outputs=(
        Append(table="readings"),
        TotalOutput(table="totals", column="amount", where="amount > 10"),
    ),
)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stages_in_driver", [True, False])
def test_a_driver_publishes_a_new_kind(
    tmp_path: Path,
    kafka_bootstrap: str,
    home_dsn: str,
    *,
    stages_in_driver: bool,
) -> None:
    """Its rows are staged by the driver itself, or by Spark's tasks."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.pipeline_file = tmp_path / "readings.py"
    world.pipeline_file.write_text(_PIPELINE.format(topic=world.topic.name))
    everything = world.topic.send(numbered(world, 0, 50))
    offsets_max = "1000" if stages_in_driver else "0"
    world.run_to_the_end(environment={"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": offsets_max})
    world.assert_fates(everything)
    world.assert_verified()
    assert world.value("SELECT sum(total) FROM totals") == sum(range(11, 50))
    taken = "SELECT sum(events) FROM tallyweir.batch_output WHERE kind = 'total'"
    assert world.value(taken) == 39


def test_a_table_that_does_not_fit_a_new_kind_is_refused(home_dsn: str) -> None:
    """A start tells it, before anything is read."""
    execute(home_dsn, "CREATE TABLE public.totals (total text)")
    with pytest.raises(ConfigurationError, match="TABLE_DIFFERS"):
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
