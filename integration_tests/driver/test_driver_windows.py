"""Late events through a real driver: revised, put aside or counted."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import NOON, Sent, sent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PIPELINE = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.avsc
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    outputs:
      - window:
          table: revised
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
          allowed_lateness: 90 minutes
          late: revise
      - window:
          table: put_aside
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
          late: side_table
      - window:
          table: dropped
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
          late: drop
"""

_SUMMARIES = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.avsc
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    outputs:
      - window:
          table: complete
          fixed: 1 hour
          by: [sensor]
          aggregate:
            spread: stddev(amount)
            different: approx_count_distinct(event_id)
            middle: approx_percentile(amount, 0.5)
            huge: sum(-1e306D * amount)
            tiny: avg(if(amount = 10, 4.9e-324D, 0D))
          early: off
      - window:
          table: pieces
          fixed: 1 hour
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
          panes: discarding
"""


def _at(world: DriverWorld, event_id: str, hours: float, **more: object) -> Sent:
    at = NOON + dt.timedelta(hours=hours)
    return sent(world.contract, event_id=event_id, at=at, **more)  # type: ignore[arg-type]


@pytest.mark.long
def test_late_events_are_revised_put_aside_or_counted(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """An output takes a late event within its lateness, or does as it says."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_PIPELINE)
    # Three batches of four. The watermark is 14:10 after the first of them.
    world.topic.send(
        [
            *[_at(world, f"a{n}", 0.5, amount=10) for n in range(2)],
            _at(world, "a2", 1.5, amount=10),
            _at(world, "a3", 3 + 1 / 6, amount=10),
            # 13:00 to 14:00 has passed, and may be revised until 15:30.
            _at(world, "b0", 1.75, amount=7),
            # 12:00 to 13:00 may be revised until 14:30; the watermark is 14:10.
            _at(world, "b1", 0.75, amount=7),
            # 10:00 to 11:00 is too late for every output.
            _at(world, "b2", -1.5, amount=7),
            _at(world, "b3", 3.25, amount=10),
            *[_at(world, f"c{n}", 3.5, amount=1) for n in range(4)],
        ]
    )
    world.run_to_the_end(batch=4)

    world.assert_verified()
    counts = world.fetch(
        "SELECT sequence, read, committed, late FROM tallyweir.batch_partition "
        "ORDER BY sequence"
    )
    assert [(1, 4, 4, 0), (2, 4, 3, 1), (3, 4, 4, 0)] == counts
    untouched = [(12, 2, 20), (13, 1, 10), (15, 6, 24)]
    assert untouched == _windows(world, "put_aside") == _windows(world, "dropped")
    assert [(12, 3, 27), (13, 2, 17), (15, 6, 24)] == _windows(world, "revised")
    former = world.fetch(
        "SELECT extract(hour FROM window_start)::int, readings, total, pane, "
        "revised_in_sequence FROM revised_revisions ORDER BY 1"
    )
    assert [(12, 2, 20, "on_time", 2), (13, 1, 10, "on_time", 2)] == former
    aside = world.fetch(
        "SELECT output_table, event_id FROM tallyweir.late_event ORDER BY 1, 2"
    )
    assert [
        ("put_aside", "b0"),
        ("put_aside", "b1"),
        ("put_aside", "b2"),
        ("revised", "b2"),
    ] == aside
    outputs = world.fetch(
        "SELECT output_table, events, late, late_kept, revised "
        "FROM tallyweir.batch_output WHERE sequence = 2 ORDER BY 1"
    )
    assert [
        ("dropped", 1, 3, False, 0),
        ("put_aside", 1, 3, True, 0),
        ("revised", 3, 1, True, 2),
    ] == outputs
    panes = world.fetch(
        "SELECT extract(hour FROM window_start)::int, pane, final FROM revised "
        "ORDER BY 1"
    )
    assert [(12, "late", True), (13, "late", False), (15, "early", False)] == panes


@pytest.mark.long
def test_sketches_panes_and_extreme_sums_pass_through_spark(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Of nine readings in three batches; the tenth completes their window."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.write_pipeline(_SUMMARIES)
    world.topic.send(
        [
            *[_at(world, f"a{n}", n / 10, amount=10 * n) for n in range(1, 10)],
            _at(world, "b", 2.5, amount=1),
        ]
    )
    world.run_to_the_end(batch=3)

    world.assert_verified()
    ((hour, spread, different, middle, huge, tiny, pane),) = world.fetch(
        "SELECT extract(hour FROM window_start)::int, spread, different, middle, huge, "
        "tiny, pane FROM complete"
    )
    assert (12, 9, "on_time") == (hour, different, pane)
    # Postgres would refuse to add these up, and the batch with them.
    assert (-math.inf, 0) == (huge, tiny)
    assert statistics.stdev(range(10, 100, 10)) == pytest.approx(spread)
    assert pytest.approx(50, rel=0.01) == middle
    assert [(1, 3, 60), (2, 3, 150), (3, 3, 240), (4, 1, 1)] == world.fetch(
        "SELECT tallyweir_sequence, readings, total::int FROM pieces ORDER BY 1"
    )


def _windows(world: DriverWorld, table: str) -> list[tuple[object, ...]]:
    return world.fetch(
        "SELECT extract(hour FROM window_start)::int, readings, total::int "
        f"FROM {table} ORDER BY 1"
    )
