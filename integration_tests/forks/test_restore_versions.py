"""A restore across updates: windows that come back know no more than they did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psycopg

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    SECOND_US,
    TP,
    PostgresDriver,
    query,
)
from integration_tests.harness.steered_pipeline import (
    LAYOUTS,
    StagedIds,
    broker_of,
    instant_of,
    stage,
)
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.versions.version_claim import describe_layout
from tallyweir.sinks.protocol.identity import Attempt
from tallyweir.sinks.protocol.votes import (
    EventCounts,
    OutputTally,
    PartitionTally,
    Vote,
    tally_votes,
)

#: Windows are final as soon as an event behind them has come.
_FIRST, _SECOND = (replace(one, watermark_delay_us=0) for one in LAYOUTS)
#: All of one window.
_LOG = (7, 4, 5)


def test_windows_that_come_back_do_not_show_what_they_cannot_know(
    home_dsn: str, tmp_path: Path
) -> None:
    """Although the aggregate was added again meanwhile, when no window was open."""
    ids = StagedIds(home_dsn, PIPELINE, tmp_path)
    _publish(PostgresDriver(dsn=home_dsn, layout=_FIRST), _LOG, ids)
    change = steering.ChangeRequest(pipeline=PIPELINE, reason="a test")
    with psycopg.connect(home_dsn) as home:
        steering.update(home, change, describe_layout(_SECOND))
        driver = PostgresDriver(dsn=home_dsn, layout=_SECOND)
        _publish(driver, _LOG, ids)
        assert [(2, None, False)] == _windows(home_dsn)
        steering.take_snapshot(home, PIPELINE, "amid", reason="a test")
        _filter_one_of_much_later(driver)
        assert [(2, None, True)] == _windows(home_dsn)
        steering.rollback(home, change, 1)
        steering.update(home, change, describe_layout(_SECOND))
        steering.restore(home, PIPELINE, "amid", broker_of(_LOG), reason="a test")
        home.commit()
        _publish(PostgresDriver(dsn=home_dsn, layout=_SECOND), _LOG, ids)
        # The first version counted a seven, which is the highest.
        assert [(3, None, False)] == _windows(home_dsn)
        assert not verify(home, PIPELINE).failed


def _windows(dsn: str) -> list[tuple[object, ...]]:
    return query(dsn, "SELECT events, highest, final FROM by_window")


def _publish(driver: PostgresDriver, log: Sequence[int], ids: StagedIds) -> None:
    """Publish the next record."""
    plan = driver.plan(1)
    vote = stage(driver, plan, log, ids)
    driver.publish(plan, tally_votes([vote], plan.ranges, records_read=1))


def _filter_one_of_much_later(driver: PostgresDriver) -> None:
    """Publish a record that becomes nothing but moves the watermark."""
    plan = driver.plan(1)
    (covered,) = plan.ranges
    offset = covered.from_offset
    driver.attempts += 1
    row = (TP.topic, TP.partition, offset, "40", "number < 40")
    driver.stage_rows("filtered_event", [row], attempt=driver.attempts)
    vote = Vote(
        attempt=Attempt(driver.attempts),
        partitions={
            TP: PartitionTally(
                counts=EventCounts(read=1, filtered=1),
                offset_min=offset,
                offset_max=offset,
                event_time_max_us=int(instant_of(40).timestamp()) * SECOND_US,
            )
        },
        staged={"filtered_event": 1},
        outputs={one.table: OutputTally() for one in driver.layout.outputs},
    )
    driver.publish(plan, tally_votes([vote], plan.ranges, records_read=1))
