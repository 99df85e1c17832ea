"""Who works on a pipeline that is discarded is told so, and its name rests."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.discarded_fork import (
    FORK,
    SHADOW_WINDOWS,
    SHAPE,
    add_own_tables,
    discard,
    fork,
)
from integration_tests.harness.postgres_cluster import await_row
from integration_tests.harness.postgres_driver import (
    append_table,
    execute,
    layout_of,
    query,
)
from integration_tests.harness.steered_world import SteeredWorld
from integration_tests.harness.whole_database import read_database
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.sinks.postgres.ledger.epoch_claims import register_pipeline
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.records.relay_feed import DEAD_LETTERS, RelayFeed
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FatalError,
    RetryableError,
)
from tallyweir.spark_jobs.batches.bridge import FenceWatch

Connection = psycopg.Connection[TupleRow]

_NOTES = "SELECT count(*) FROM tallyweir.discarded_pipeline"
_LAYOUT = replace(layout_of(append_table("departures", n="bigint")), pipeline=FORK)
_DECISION = """
INSERT INTO tallyweir.scaling_decision (
    pipeline, epoch, because, reason, executors_there, executor_cores, tasks_max
)
SELECT %(pipeline)s, max(epoch), 'backlog', '', 1, 1, 1
FROM tallyweir.epoch_claim
WHERE pipeline = %(pipeline)s
"""
_WAITS = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def scenario(connection: Connection, scenario: LedgerScenario) -> LedgerScenario:
    """The ledger's, with tables as a driver makes them."""
    add_own_tables(connection)
    return scenario


@pytest.mark.parametrize("run", [None, "history"])
def test_a_name_that_was_discarded_rests_until_somebody_forks_under_it(
    home_dsn: str, connection: Connection, scenario: LedgerScenario, run: str | None
) -> None:
    """By its file a driver would read the topic from the start into readers' tables."""
    assert scenario.sequence == 3
    fork(connection)
    discard(connection)
    before = read_database(home_dsn)
    with closing(PostgresHome(home_dsn, _LAYOUT, run=run)) as home:
        with pytest.raises(ConfigurationError, match=r"PIPELINE_DISCARDED.*too fine"):
            home.claim_epoch()
        assert before == read_database(home_dsn)
        fork(connection)
        # Its driver finds the shadows when it starts, as this one has not.
        with pytest.raises(RetryableError, match="TABLES_SWITCHED"):
            home.claim_epoch()
    assert discard(connection).batches == 3
    assert query(home_dsn, _NOTES) == [(2,)]


def test_a_start_during_a_discard_registers_nothing(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """It waits for the row that goes, and then finds the note in place of it."""
    assert scenario.sequence == 3
    fork(connection)
    with (
        ThreadPoolExecutor(1) as pool,
        closing(PostgresHome(home_dsn, _LAYOUT)) as home,
    ):
        starts: list[Any] = []

        class Discarding(psycopg.Cursor[TupleRow]):
            def execute(self, query: Any, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
                text = str(getattr(query, "as_string", lambda _: query)(None))
                if "DROP TABLE" in text and not starts:
                    starts.append(pool.submit(home.claim_epoch))
                    await_row(home_dsn, _WAITS)
                return super().execute(query, *rest, **more)

        with psycopg.connect(
            home_dsn, cursor_factory=Discarding, options="-c search_path=public"
        ) as discarding:
            discard(discarding)
        with pytest.raises(ConfigurationError, match="PIPELINE_DISCARDED"):
            starts[0].result(60)
    known = query(home_dsn, "SELECT pipeline FROM tallyweir.pipeline")
    assert known == [(PIPELINE,)]


def test_a_discard_during_a_start_takes_what_that_has_made(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """It waits for the start, which holds the row until its tables are there."""
    assert scenario.sequence == 3
    shape = query(home_dsn, SHAPE)
    fork(connection)
    values = {
        "pipeline": FORK,
        "definition": "{}",
        "definition_hash": "hash",
        "shards": 1,
        "bucket_seconds": 1,
    }
    with (
        connect(home_dsn, application_name="test") as starting,
        ThreadPoolExecutor(1) as pool,
    ):
        register_pipeline(starting, values)
        starting.execute(f"CREATE TABLE {SHADOW_WINDOWS}_revisions (n int)".encode())
        discarding = pool.submit(discard, connection)
        await_row(home_dsn, _WAITS)
        starting.commit()
        discarding.result(60)
    assert shape == query(home_dsn, SHAPE)


def test_what_is_being_written_down_about_a_claim_goes_with_it(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Who refers to a claim only is waited for, as who holds the pipeline's row is."""
    assert scenario.sequence == 3
    fork(connection)
    with (
        connect(home_dsn, application_name="test") as writing,
        ThreadPoolExecutor(1) as pool,
    ):
        writing.execute(_DECISION, {"pipeline": FORK})
        discarding = pool.submit(discard, connection)
        await_row(home_dsn, _WAITS)
        writing.commit()
        done = discarding.result(60)
    assert done.rows["tallyweir.scaling_decision"] == 1


@pytest.fixture
def world(home_dsn: str, tmp_path: Path) -> Iterator[SteeredWorld]:
    """A pipeline in the shadow of nobody, whose driver has staged a batch."""
    made = SteeredWorld(dsn=home_dsn, directory=tmp_path)
    made.first.claim(0)
    made.first.stage(0, [1, 2, 3])
    made.first.publish(0)
    made.first.stage(0, [4, 5])
    execute(
        home_dsn,
        "INSERT INTO tallyweir.shadow_table VALUES ('numbers', 'shown', 'numbers')",
        "INSERT INTO tallyweir.shadow_table "
        "VALUES ('numbers', 'shown_by_window', 'by_window')",
    )
    yield made
    made.close()


def test_a_driver_at_work_is_told_at_whatever_it_does_next(
    home_dsn: str, connection: Connection, world: SteeredWorld
) -> None:
    """It publishes nothing, and what fails for want of its tables says so, too."""
    driver = world.first._seats[0].driver
    watch = FenceWatch(driver.home, driver.epoch)
    watch.look_at_rest()
    done = discard(connection, "numbers")
    assert (done.front, done.batches) == (None, 1)
    before = read_database(home_dsn)
    said = "PIPELINE_DISCARDED"
    with pytest.raises(ConfigurationError, match=said):
        world.first.publish(0)
    with pytest.raises(ConfigurationError, match=said):
        driver.plan(1)
    with pytest.raises(ConfigurationError, match=said):
        FenceWatch(driver.home, driver.epoch).look_at_rest()
    with pytest.raises(ConfigurationError, match=said):
        driver.home.read_newest_driver_claim()
    failure = FatalError("POSTGRES_REFUSED", saw="", why="", fix="")
    assert said in str(watch.name(failure))
    assert before == read_database(home_dsn)


def test_a_relay_at_work_on_a_discarded_pipeline_goes_on_with_the_others(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """What it has just sent it cannot note; its next round finds the others only."""
    assert scenario.sequence == 3
    fork(connection)
    with closing(RelayFeed(home_dsn)) as feed:
        assert feed.try_lock()
        after = feed.read_cursor(FORK, DEAD_LETTERS)
        sent = replace(after, offset=99)
        discard(connection)
        with pytest.raises(RetryableError, match="PIPELINE_GONE"):
            feed.move_cursor(FORK, DEAD_LETTERS, after=after, to=sent, messages=1)
    with closing(RelayFeed(home_dsn)) as feed:
        assert feed.list_pipelines() == [PIPELINE]
