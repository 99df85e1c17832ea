"""Small batches, which the driver stages itself, and large ones give the same."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import Sent, sent
from tallyweir.sinks.postgres.server.naming import STAGING_SETS, staging_table
from tallyweir.sinks.postgres.staging.attempt_register import ATTEMPTS
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import EpochClaim

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Leaves every batch to tasks of Spark.
_IN_DRIVER = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "20000"}
_TASKS_ONLY = {"TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0"}
_EVENTS = 40
_PIPELINE = (
    SOURCE
    + """
    deduplicate: {{horizon: 7 days}}
    outputs:
      - append: {{table: readings}}
      - window:
          table: readings_by_hour
          fixed: 1 hour
          aggregate: {{readings: count(*), total: sum(amount)}}
"""
)
_WAITING = (
    "SELECT pid FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def test_driver_and_tasks_take_turns_on_one_stream(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Each knows the IDs that the other has filed; fates, ledger and proof agree."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    everything: dict[tuple[int, int], Sent] = {}
    turns = [(_IN_DRIVER, True), (_TASKS_ONLY, False), (_IN_DRIVER, True)]
    for turn, (environment, is_in_driver) in enumerate(turns):
        everything |= world.topic.send(_records(world, turn))
        world.run_to_the_end(environment=environment)
        world.assert_fates(everything)
        assert {is_in_driver} == _staged_in_driver(world, Epoch(turn + 1))
    counted = world.value("SELECT sum(readings)::int FROM readings_by_hour")
    assert len(turns) * _EVENTS == counted


def test_a_connection_lost_in_the_drivers_own_stage_costs_nothing(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The driver starts over, as it does when a task has lost one."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    with world.driver(environment=_IN_DRIVER) as driver:
        driver.wait_for("driver started")
        with psycopg.connect(home_dsn) as connection:
            connection.execute(
                sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(
                    staging_table(1, Epoch(1), "output_0", sequence=1)
                )
            )
            everything = world.topic.send(_records(world, 0))
            pid = world.await_value(_WAITING, lambda waiting: waiting is not None)
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        world.await_read(len(everything))
        assert "starting over" in driver.text
    world.assert_fates(everything)


def _staged_in_driver(world: DriverWorld, epoch: Epoch) -> set[bool]:
    """Tell who has staged the rows that lie in an epoch's tables.

    Attempts are named by the claim; the driver's own have the highest numbers.
    """
    ((nonce,),) = world.fetch(
        f"SELECT nonce FROM tallyweir.epoch_claim WHERE epoch = {epoch}"
    )
    first = EpochClaim(
        installation="", pipeline_number=1, epoch=epoch, nonce=str(nonce)
    ).attempt(0)
    found: set[int] = set()
    for each in range(STAGING_SETS):
        table = staging_table(1, epoch, "output_0", sequence=each)
        registered = staging_table(1, epoch, ATTEMPTS, sequence=each)
        query = sql.SQL(
            "SELECT DISTINCT attempt FROM {} AS staged JOIN {} AS registered "
            "ON registered.xmin = staged.xmin"
        ).format(table, registered)
        found |= {int(str(attempt)) for (attempt,) in world.fetch(query.as_string())}
    assert all(0 <= attempt - first < 2**31 for attempt in found)
    return {attempt - first >= 2**30 for attempt in found}


def _records(world: DriverWorld, turn: int) -> list[Sent]:
    """Events of a turn, repeats of them and of the turn before, and dead letters."""

    def event(of_turn: int, number: int, fate: str) -> Sent:
        return sent(
            world.contract,
            event_id=f"e{of_turn}-{number}",
            amount=number,
            partition=number % 2,
            fate=fate,
        )

    fresh = [event(turn, number, "committed") for number in range(_EVENTS)]
    repeats = [event(turn, number, "duplicate") for number in range(0, _EVENTS, 5)]
    known = [event(turn - 1, number, "duplicate") for number in range(0, _EVENTS, 7)]
    dead = [Sent(value=b"no", fate="BAD_MAGIC", partition=turn % 2)]
    return fresh + repeats + (known if turn else []) + dead
