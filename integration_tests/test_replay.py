"""``verify --replay``: a pipeline computed again equals what it has committed."""

from __future__ import annotations

import datetime as dt
import signal
from functools import partial
from pathlib import Path

import pytest

from integration_tests.harness.driver_process import DriverProcess
from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.keyed_pipeline import (
    KEYED_PIPELINE,
    write_python_pipeline,
)
from integration_tests.harness.readings import NOON, Sent, sent
from integration_tests.harness.replayed import Replayed, command, replay
from sinks.faultpoints import FaultPoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_PIPELINE = (
    SOURCE.replace("1 hour", "30 s")
    + """
    deduplicate: {{horizon: 7 days}}
    validate:
      NEGATIVE_AMOUNT: "amount >= 0"
    filter: "amount <> 13"
    outputs:
      - append: {{table: readings}}
      - append: {{table: high, where: grade = 'HIGH'}}
      - window:
          table: minutes
          fixed: 1 minute
          by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount), last: last(event_id)}}
          late: revise
          allowed_lateness: 2 minutes
      - window:
          table: visits
          session: {{gap: 20 s}}
          by: [sensor]
          aggregate: {{readings: count(*), largest: max(amount)}}
      - join:
          table: pairs
          on: [sensor]
          within: {{before: 3 s, after: 8 s}}
          left: {{where: grade = 'LOW', select: {{low: event_id}}}}
          right: {{where: grade = 'HIGH', select: {{high: event_id}}}}
          unmatched: both
      - outbox: {{topic: announced, key: sensor, select: [event_id, amount]}}
"""
)
_EVENTS = 240


def _readings(world: DriverWorld) -> list[Sent]:
    """Good, bad, late and old ones, and copies of others in the other partition."""
    found = []
    for number in range(_EVENTS):
        partition, other = number % 2, (number + 1) % 2
        at = NOON + dt.timedelta(seconds=number + 60 * (number // 80))
        event = partial(
            sent,
            world.contract,
            event_id=f"n{number}",
            sensor=f"s{number % 3}",
            amount=number % 17,
            grade="HIGH" if number % 4 == 0 else "LOW",
            at=at,
        )
        found.append(event(partition=partition))
        if number % 5 == 0:
            found.append(event(partition=other))
        if number % 30 == 7:
            found.append(event(partition=other, amount=99))
        if number % 30 == 11:
            found.append(Sent(value=b"broken", partition=partition))
            found.append(event(partition=other, event_id=f"b{number}", amount=-1))
        if number % 40 == 39:
            for minutes in (2, 40):
                late = at - dt.timedelta(minutes=minutes)
                found.append(event(event_id=f"l{number}-{minutes}", at=late))
    return found


def _assert_verified(found: Replayed) -> None:
    assert {} == found.unlike, found.told
    assert ("VERIFIED BY REPLAY", 0) == (found.verdict, found.exit_code), found.receipt


def test_every_row_is_computed_again_and_each_change_by_hand_is_found(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """With windows, sessions, a join, an outbox, and drivers that were killed."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.write_pipeline(_PIPELINE)
    world.topic.send(_readings(world))
    for point in (FaultPoint.VOTED, FaultPoint.DECISION_COMMITTED):
        with world.driver(batch=40, fault=f"after:{point.value}:3:SIGKILL") as driver:
            assert driver.wait() == -signal.SIGKILL, driver.text
    world.run_to_the_end(batch=40)
    world.assert_verified()
    claims = world.value("SELECT count(*) FROM tallyweir.epoch_claim")
    homes = world.fetch("SELECT datname FROM pg_database ORDER BY 1")

    found = replay(world)

    _assert_verified(found)
    for part in ("readings", "high", "minutes", "minutes_revisions", "visits", "pairs"):
        assert found.part(part)["equal"] > 0, part
    for part in ("dead_letter", "duplicate_event", "late_event", "filtered_event"):
        assert found.part(part)["equal"] > 0, part
    assert f"of {found.receipt['batches']} batches" in found.told
    assert claims == world.value("SELECT count(*) FROM tallyweir.epoch_claim")
    assert homes == world.fetch("SELECT datname FROM pg_database ORDER BY 1")

    world.execute(
        "UPDATE readings SET amount = amount + 1 WHERE event_id = 'n3'",
        "DELETE FROM high WHERE event_id = 'n8'",
        "UPDATE minutes SET total = total + 1 WHERE ctid = "
        "(SELECT ctid FROM minutes ORDER BY window_start, sensor LIMIT 1)",
        "DELETE FROM minutes_revisions WHERE ctid = "
        "(SELECT ctid FROM minutes_revisions LIMIT 1)",
        "INSERT INTO visits SELECT window_start - interval '1 day', "
        "window_end - interval '1 day', sensor, readings, largest, pane, final "
        "FROM visits LIMIT 1",
        "UPDATE pairs SET low = 'n999' WHERE ctid = (SELECT ctid FROM pairs LIMIT 1)",
        "DELETE FROM tallyweir.outbox WHERE event_id = 'n0'",
        "UPDATE tallyweir.outbox SET value = 'other' WHERE event_id = 'n1'",
        "UPDATE tallyweir.dead_letter SET detail = 'other' WHERE ctid = "
        "(SELECT ctid FROM tallyweir.dead_letter LIMIT 1)",
        "UPDATE tallyweir.keyed_state SET value = '[]' WHERE ctid = "
        "(SELECT ctid FROM tallyweir.keyed_state LIMIT 1)",
        "UPDATE tallyweir.filtered_event SET condition = 'other' WHERE ctid = "
        "(SELECT ctid FROM tallyweir.filtered_event LIMIT 1)",
    )

    found = replay(world)

    assert ("DIFFERENT", 1) == (found.verdict, found.exit_code)
    assert {
        "readings": ["different"],
        "high": ["missing"],
        "minutes": ["different"],
        "minutes_revisions": ["missing"],
        "visits": ["extra"],
        "pairs": ["different"],
        "outbox": ["different", "missing"],
        "dead_letter": ["different"],
        "keyed_state": ["different"],
        "filtered_event": ["different"],
    } == {name: [finding for finding, _ in rows] for name, rows in found.unlike.items()}


def _numbered(
    world: DriverWorld, first: int, count: int, *, of: int = 1_000
) -> list[Sent]:
    """Readings two seconds apart, of which each fifth is a copy of an earlier one."""
    return [
        sent(
            world.contract,
            partition=number % 2,
            event_id=f"n{(number - 5 if number % 5 == 0 else number) % of}",
            sensor=f"s{number % 3}",
            amount=1,
            at=NOON + dt.timedelta(seconds=2 * (number - 5 * (number % 5 == 0))),
        )
        for number in range(first, first + count)
    ]


_WINDOWED = (
    SOURCE
    + """
    deduplicate: {{horizon: 7 days}}
    outputs:
      - append: {{table: readings}}
      - window:
          table: minutes
          fixed: 1 minute
          aggregate: {{readings: count(*), total: sum(amount)}}
"""
)


def _act(world: DriverWorld, *arguments: str) -> None:
    done = command(world, *arguments)
    assert done.returncode == 0, done.stderr


def test_acts_and_retention_are_followed(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """A restore, offsets that were read again, an erasure; then records are gone."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.write_pipeline(_WINDOWED)
    world.topic.send(_numbered(world, 0, 40))
    world.run_to_the_end(batch=20)
    why = ("--reason", "a test")
    _act(world, "snapshot", "take", "readings", "early", *why)
    world.topic.send(_numbered(world, 40, 40))
    world.run_to_the_end(batch=20)
    _act(world, "restore", "readings", "early", *why)
    world.run_to_the_end(batch=30)
    _act(world, "snapshot", "drop", "readings", "early")
    target = f"{world.topic.name}:0=10"
    _act(world, "offsets", "reset", "readings", "--to-offset", target, *why)
    _act(world, "erase", "readings", "--id", "n7", "--id", "n41", *why)
    again = [sent(world.contract, event_id="n7", partition=1)]
    world.topic.send(_numbered(world, 80, 40) + again)
    world.run_to_the_end(batch=30)
    _act(world, "snapshot", "take", "readings", "late", *why)
    world.topic.send(_numbered(world, 118, 42))
    world.run_to_the_end(batch=30)
    world.assert_verified()
    assert 0 == world.value("SELECT count(*) FROM readings WHERE event_id = 'n7'")

    found = replay(world)

    _assert_verified(found)
    assert any("erased" in note for note in found.receipt["notes"])
    # The erased event came again, and has left its position only.
    assert found.part("filtered_event")["equal"] == 1

    world.topic.delete_before(1)
    world.execute("UPDATE readings SET amount = 2 WHERE event_id = 'n151'")

    found = replay(world)

    assert ("DIFFERENT", 1) == (found.verdict, found.exit_code)
    assert "retention" in found.receipt["why_after"]
    assert 1 == found.receipt["after_sequence"]
    assert {"readings": ["different"]} == {
        name: [finding for finding, _ in rows] for name, rows in found.unlike.items()
    }
    assert "batches up to" in found.part("minutes")["not_compared"]

    world.execute("UPDATE readings SET amount = 1 WHERE event_id = 'n151'")
    world.execute(
        "UPDATE minutes SET total = total + 1 WHERE window_start = "
        "(SELECT max(window_start) FROM minutes)"
    )
    found = replay(world, "--since", "late")

    assert {"minutes": ["different"]} == {
        name: [finding for finding, _ in rows] for name, rows in found.unlike.items()
    }
    assert found.part("readings")["equal"] > 0
    assert found.part("duplicate_event")["equal"] > 0
    assert "only batches after" in found.receipt["why_after"]


def test_functions_and_timers_are_computed_again(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Timers of both clocks, ticks, and state that was changed by hand."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    write_python_pipeline(world, KEYED_PIPELINE)
    world.topic.send(_numbered(world, 0, 200))
    with world.driver(batch=40, fault="after:keys_voted:3:SIGKILL") as driver:
        assert driver.wait() == -signal.SIGKILL, driver.text
    world.run_to_the_end(batch=40)
    assert world.value(
        "SELECT count(*) FROM tallyweir.batch WHERE spark_batch_id IS NULL"
    )

    _assert_verified(replay(world))

    world.execute(
        "UPDATE totals SET total = total + 1 WHERE ctid = "
        "(SELECT ctid FROM totals WHERE what = 'event' LIMIT 1)",
        "DELETE FROM tallyweir.keyed_timer WHERE ctid = "
        "(SELECT ctid FROM tallyweir.keyed_timer LIMIT 1)",
    )
    found = replay(world)

    assert {"totals": ["different"], "keyed_timer": ["missing"]} == {
        name: [finding for finding, _ in rows] for name, rows in found.unlike.items()
    }


@pytest.mark.long
def test_a_driver_that_forgets_to_merge_windows_is_found(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """``verify`` counts events; what windows make of them, only a replay computes."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    world.write_pipeline(_WINDOWED)
    world.topic.send(_numbered(world, 0, 120))
    with DriverProcess(
        world.pipeline_file,
        kafka_bootstrap=kafka_bootstrap,
        home_dsn=empty_dsn,
        state_directory=world.state,
        once=True,
        environment={"TALLYWEIR_BATCH_OFFSETS_MAX": "40"},
        module="integration_tests.harness.forgetful_driver",
    ) as driver:
        assert driver.wait() == 0, driver.text

    found = replay(world)

    assert "DIFFERENT" == found.verdict
    assert {"minutes", "open windows of minutes"} == set(found.unlike)
