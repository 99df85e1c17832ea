"""``verify --replay``: a pipeline computed again equals what it has committed."""

from __future__ import annotations

import copy
import datetime as dt
import json
import os
import signal
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from integration_tests.harness.driver_world import (
    PIPELINE,
    SOURCE,
    DriverWorld,
    numbered,
)
from integration_tests.harness.forked_readings import FIRST, forked_file
from integration_tests.harness.keyed_pipeline import (
    KEYED_PIPELINE,
    write_python_pipeline,
)
from integration_tests.harness.readings import NOON, Sent, sent
from integration_tests.harness.replayed import Replayed, command, replay, started
from integration_tests.harness.watched_driver import WatchedDriver
from tallyweir.sinks.faultpoints import FaultPoint
from tallyweir.sinks.postgres import steering

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
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """With windows, sessions, a join, an outbox, and drivers that were killed."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
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
    } == found.findings


def _sorts(found: Replayed) -> dict[str, set[str]]:
    return {name: set(findings) for name, findings in found.findings.items()}


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


@pytest.mark.long
def test_acts_and_retention_are_followed(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A restore, offsets that were read again, an erasure; then records are gone."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
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
    assert {"readings": ["different"]} == found.findings
    assert "batches up to" in found.part("minutes")["not_compared"]

    world.execute("UPDATE readings SET amount = 1 WHERE event_id = 'n151'")
    world.execute(
        "UPDATE minutes SET total = total + 1 WHERE window_start = "
        "(SELECT max(window_start) FROM minutes)"
    )
    found = replay(world, "--since", "late")

    assert {"minutes": ["different"]} == found.findings
    assert found.part("readings")["equal"] > 0
    assert found.part("duplicate_event")["equal"] > 0
    assert "only batches after" in found.receipt["why_after"]


@pytest.mark.long
def test_functions_and_timers_are_computed_again(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Timers of both clocks, ticks, and state that was changed by hand."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
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

    assert {"totals": ["different"], "keyed_timer": ["missing"]} == found.findings


@pytest.mark.long
def test_runs_over_ranges_are_computed_again(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """One that appends and one that corrects, between batches of the stream."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(
        PIPELINE + "      - append: {{table: high, where: amount > 20}}\n"
    )
    topic = world.topic.name
    world.topic.send(numbered(world, 0, 20))
    world.run_batch("first", f"{topic}:0:2-6")
    world.run_to_the_end(batch=10)
    world.topic.send(
        [
            sent(world.contract, event_id=f"n{number}", amount=amount)
            for number, amount in ((2, 25), (3, 30), (3, 31), (4, 4), (90, 40))
        ]
    )
    world.run_batch("fix", f"{topic}:0:10-15", disposition="upsert")
    world.run_to_the_end(batch=10)
    assert 2 == world.value("SELECT count(*) FROM tallyweir.replaced_row")
    world.execute(
        "UPDATE readings SET amount = 2 WHERE event_id = 'n90'",
        "DELETE FROM high WHERE event_id = 'n2'",
        "DELETE FROM tallyweir.replaced_row WHERE event_id = 'n2'",
    )

    found = replay(world)

    assert 0 == found.receipt["after_sequence"]
    assert {
        "readings": ["different"],
        "high": ["missing"],
        "replaced_row": ["missing"],
    } == found.findings


def _request(kind: str) -> steering.ActRequest:
    return steering.ActRequest(pipeline="readings", kind=kind, reason="a test")


@pytest.mark.long
def test_a_fork_is_computed_again_and_so_is_what_it_came_from(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """When the two have changed places: all batches of the first, the fork's own.

    What the fork was made with ran as another version than its file, which is said.
    """
    first = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    first.write_pipeline(FIRST)
    first.topic.send(numbered(first, 0, 40))
    first.run_to_the_end(batch=20)
    with psycopg.connect(home_dsn) as home:
        steering.fork(home, _request("fork"), "readings-2")
    fork = copy.copy(first)
    fork.pipeline_file, fork.state = tmp_path / "fork.yaml", tmp_path / "fork-state"
    fork.write_pipeline(forked_file("    filter: amount < 50"))
    first.topic.send(numbered(first, 40, 40))
    fork.run_to_the_end(batch=20)
    with psycopg.connect(home_dsn) as home:
        steering.switch(home, _request("switch"), "readings-2")
    first.run_to_the_end(batch=20)
    first.execute(
        "UPDATE readings__readings SET amount = 0 WHERE event_id IN ('n3', 'n75')",
        "UPDATE by_sensor__readings SET total = total + 1",
        "UPDATE readings SET amount = 0 WHERE event_id IN ('n3', 'n45')",
    )

    found = replay(first)

    assert 0 == found.receipt["after_sequence"]
    assert {"readings": ["different"] * 2, "by_sensor": ["different"]} == found.findings

    found = replay(fork)

    assert 2 == found.receipt["after_sequence"]
    assert "version" in found.receipt["why_after"]
    assert {"readings": ["different"]} == found.findings
    assert "batches up to 2" in found.part("by_sensor")["not_compared"]


def test_rows_that_tasks_have_written_are_computed_again(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """What a killed driver leaves twice is one row; what the table refuses is none."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(
        PIPELINE.replace("outputs:", "guarantee: at_least_once\n    outputs:")
    )
    world.execute(_OWN_TABLE)
    events = numbered(world, 0, 60)
    refused = [sent(world.contract, event_id="bad", sensor="forbidden")]
    world.topic.send([*events, *events[:10], *refused])
    with world.driver(
        batch=20, fault=f"after:{FaultPoint.VOTED.value}:2:SIGKILL"
    ) as driver:
        assert driver.wait() == -signal.SIGKILL, driver.text
    world.run_to_the_end(batch=20)
    assert 70 < world.value("SELECT count(*) FROM readings")
    world.execute(
        "UPDATE readings SET amount = 0 WHERE ctid = "
        "(SELECT ctid FROM readings WHERE event_id = 'n11' LIMIT 1)",
        "DELETE FROM readings WHERE event_id = 'n55'",
    )

    found = replay(world)

    assert found.part("dead_letter")["equal"] == 1
    assert {"readings": {"different", "missing"}} == _sorts(found)


_OWN_TABLE = """
    CREATE TABLE readings (
        event_id text, at timestamptz, sensor text CHECK (sensor <> 'forbidden'),
        amount integer, site text, grade text, divisor integer, place text,
        kafka_topic text, kafka_partition integer, kafka_offset bigint
    )
"""
_DRAINED = (
    SOURCE.replace("1 hour", "10 minutes")
    + """
    enrich:
      - {{table: sites, on: {{site: code}}, select: {{place: name}}}}
    outputs:
      - append: {{table: readings}}
      - window:
          table: by_place
          fixed: 1 hour
          by: [place]
          aggregate: {{readings: count(*)}}
          late: side_table
      - window:
          table: visits
          session: {{gap: 11 minutes}}
          by: [sensor]
          aggregate: {{readings: count(*)}}
          early: off
"""
)


@pytest.mark.long
def test_drains_refused_rows_and_lookups_are_followed(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """One drain that keeps the windows, one that closes them; then it goes on.

    Of two rows that exclude each other the ledger says which was refused.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_DRAINED)
    skip = "IF NEW.sensor = 'skip' THEN RETURN NULL; END IF; RETURN NEW;"
    world.execute(
        _OWN_TABLE,
        "ALTER TABLE readings ADD EXCLUDE (divisor WITH =) WHERE (divisor > 1)",
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$BEGIN {skip} END$$",
        "CREATE TRIGGER skip BEFORE INSERT ON readings "
        "FOR EACH ROW EXECUTE FUNCTION skip()",
        "CREATE TABLE sites (code text PRIMARY KEY, name text)",
        "INSERT INTO sites VALUES ('A', 'roof'), ('B', 'cellar')",
    )
    drains = ((0, "--keep-windows"), (90, "--close-windows"), (160, ""))
    for drain, (minutes, how) in enumerate(drains):
        at = partial(_minutes_later, world, minutes)
        world.topic.send(
            [
                *(at(n, site="AB"[n % 2]) for n in range(9)),
                at(4, event_id=f"check{drain}", sensor="forbidden"),
                at(5, event_id=f"skipped{drain}", sensor="skip"),
                at(6, event_id=f"one{drain}", divisor=drain + 2, partition=0),
                at(6, event_id=f"two{drain}", divisor=drain + 2, partition=1),
            ]
        )
        if not how:
            world.run_to_the_end()
            break
        with world.driver() as driver:
            world.await_read(13 * (drain + 1))
            _act(world, "drain", "readings", how, "--reason", "a test")
            assert driver.wait() == 0, driver.text
        _act(world, "resume", "readings")
    world.assert_verified()
    assert world.value("SELECT count(*) FROM tallyweir.late_event")
    world.execute(
        "UPDATE sites SET name = 'attic' WHERE code = 'A'",
        "UPDATE readings SET amount = 0 WHERE event_id = 'n0-3'",
        "UPDATE visits SET readings = 0 WHERE ctid = (SELECT ctid FROM visits LIMIT 1)",
        "DELETE FROM tallyweir.dead_letter WHERE event_id = 'check1'",
    )

    found = replay(world)

    assert {
        "readings": {"different", "undetermined"},
        "by_place": {"undetermined"},
        "open windows of by_place": {"undetermined"},
        "visits": {"different"},
        "dead_letter": {"missing"},
    } == _sorts(found)


def _minutes_later(
    world: DriverWorld, minutes: int, number: int, **fields: object
) -> Sent:
    named = {"event_id": f"n{minutes}-{number}", "partition": number % 2}
    at = NOON + dt.timedelta(minutes=minutes + 10 * number)
    return sent(world.contract, at=at, amount=1, **(named | fields))  # type: ignore[arg-type]


@pytest.mark.long
def test_a_replay_beside_a_driver_sees_one_moment_and_leaves_nothing(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Batches that are committed meanwhile are no difference; then after Ctrl-C."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_WINDOWED)
    world.topic.send(_numbered(world, 0, 60))
    with world.driver(batch=10) as driver:
        world.await_read(60)
        world.execute("UPDATE readings SET amount = 2 WHERE event_id = 'n3'")
        with started(
            world, "verify", str(world.pipeline_file), "--replay", "--json"
        ) as process:
            _await_scratch_batch(world)
            world.topic.send(_numbered(world, 60, 40))
            world.await_read(100)
            written, told = process.communicate()
        receipt = json.loads(written)["replay"]
        found = Replayed(exit_code=process.returncode, receipt=receipt, told=told)
        assert {"readings": ["different"]} == found.findings
        assert 60 == found.receipt["records"]
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text

    with started(world, "verify", str(world.pipeline_file), "--replay") as process:
        _await_scratch_batch(world)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate()

    assert 130 == process.returncode, told
    assert "interrupted" in told
    assert "Traceback" not in told
    assert [] == world.fetch(_SCRATCH)


_SCRATCH = "SELECT datname FROM pg_database WHERE datname LIKE 'tallyweir_scratch%'"


def _await_scratch_batch(world: DriverWorld) -> None:
    """Wait until a replay has published a batch in its scratch home."""
    scratch = copy.copy(world)
    named = world.await_value(_SCRATCH, bool)
    scratch.home_dsn = make_conninfo(world.home_dsn, dbname=named)
    scratch.await_value("SELECT count(*) FROM tallyweir.batch", bool)


@pytest.mark.long
def test_a_driver_that_forgets_to_merge_windows_is_found(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """``verify`` counts events; what windows make of them, only a replay computes."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_WINDOWED)
    world.topic.send(_numbered(world, 0, 120))
    with WatchedDriver(
        world.pipeline_file,
        kafka_bootstrap=kafka_bootstrap,
        home_dsn=home_dsn,
        state_directory=world.state,
        once=True,
        environment={"TALLYWEIR_BATCH_OFFSETS_MAX": "40"},
        module="integration_tests.harness.forgetful_driver",
    ) as driver:
        assert driver.wait() == 0, driver.text

    found = replay(world)

    assert "DIFFERENT" == found.verdict
    assert {"minutes", "open windows of minutes"} == set(found.unlike)
