"""Two drivers and one pipeline: who may publish, and who waits for whom."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    PostgresDriver,
    append_table,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.publish import publish_transaction
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import FatalError, FencedError, RetryableError

_LAYOUT = layout_of(append_table("numbers", number="bigint"))
_DEADLINE_S = 20.0


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {_DEADLINE_S} s until {what}"
        time.sleep(0.01)


def _claims(dsn: str) -> int:
    ((claims,),) = query(dsn, "SELECT count(*) FROM tallyweir.epoch_claim")
    return int(claims)


def _waiting(dsn: str) -> int:
    ((waiting,),) = query(
        dsn,
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()",
    )
    return int(waiting)


def test_a_claim_is_made_at_once_but_returns_after_the_publish_under_way(
    home_dsn: str,
) -> None:
    """What a publisher holds does not delay the fence, only the reading after it."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    claimed = threading.Event()

    def claim() -> None:
        home = PostgresHome(home_dsn, _LAYOUT)
        home.claim_epoch()
        claimed.set()
        home.close()

    with connect(home_dsn, application_name="test publisher") as publisher:
        publisher.execute(
            publish_transaction._SQL["lock_pipeline"], {"pipeline": PIPELINE}
        )
        thread = threading.Thread(target=claim)
        thread.start()
        _wait_until(lambda: _claims(home_dsn) == 2, "the claim is there")
        _wait_until(lambda: _waiting(home_dsn) == 1, "the claimer waits for the row")
        assert not claimed.is_set()
        publisher.rollback()
    thread.join()
    assert claimed.is_set()


def test_a_publish_that_waited_for_the_lock_finds_the_newer_claim(
    home_dsn: str,
) -> None:
    """The fence is read after the lock, not from a snapshot taken before it."""
    old = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = old.plan(1)
    tally = old.stage(plan, {"output_0": old.positioned(plan, [(1,)])})
    outcomes: list[object] = []

    def publish_batch() -> None:
        try:
            outcomes.append(old.publish(plan, tally))
        except FencedError as error:
            outcomes.append(error.code)

    with connect(home_dsn, application_name="test claimer") as claimer:
        claimer.execute(
            publish_transaction._SQL["lock_pipeline"], {"pipeline": PIPELINE}
        )
        thread = threading.Thread(target=publish_batch)
        thread.start()
        _wait_until(lambda: _waiting(home_dsn) == 1, "the publisher waits for the row")
        claimer.execute(
            "INSERT INTO tallyweir.epoch_claim (pipeline, epoch, host, process_id) "
            "VALUES ('numbers', 2, 'test', 1)"
        )
        claimer.commit()
    thread.join()
    assert ["FENCED"] == outcomes
    assert [] == query(home_dsn, "SELECT number FROM numbers")


def test_a_paused_publisher_loses_the_row_to_its_successor(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver stopped in its transaction is ended by the server, and is fenced."""
    settings = publish_transaction._SQL["begin_settings"].as_string(None)
    short = settings.replace(
        "idle_in_transaction_session_timeout', '30s'",
        "idle_in_transaction_session_timeout', '300ms'",
    )
    assert short != settings
    monkeypatch.setitem(
        publish_transaction._SQL, "begin_settings", psycopg.sql.SQL(short)
    )
    old = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = old.plan(1)
    tally = old.stage(plan, {"output_0": old.positioned(plan, [(1,)])})
    paused, resume = threading.Event(), threading.Event()
    outcomes: list[str] = []
    advance = publish_transaction.PostgresPublishTransaction._advance

    def pause(
        self: publish_transaction.PostgresPublishTransaction, *arguments: object
    ) -> None:
        paused.set()
        assert resume.wait(_DEADLINE_S)
        advance(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(
        publish_transaction.PostgresPublishTransaction, "_advance", pause
    )

    def publish_batch() -> None:
        for _ in range(2):
            try:
                old.publish(plan, tally)
            except (RetryableError, FencedError) as error:
                outcomes.append(error.code)

    thread = threading.Thread(target=publish_batch)
    thread.start()
    assert paused.wait(_DEADLINE_S)
    new = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    resume.set()
    thread.join()

    assert ["POSTGRES_UNAVAILABLE", "FENCED"] == outcomes
    assert PublishOutcome.COMMITTED is new.append([(7,)])
    assert [(7,)] == query(home_dsn, "SELECT number FROM numbers")


def test_drivers_that_race_publish_each_batch_once(home_dsn: str) -> None:
    """Several drivers take the pipeline from each other; offsets stay dense."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    stop = threading.Event()
    ends: list[str] = []

    def drive(seed: int) -> None:
        chance = random.Random(seed)
        while not stop.is_set():
            driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
            try:
                for _ in range(3):
                    driver.append([(1,), (2,)])
            except (FencedError, RetryableError, FatalError) as error:
                # Staging that a newer driver has dropped is fatal to a task.
                ends.append(error.code)
                # As whatever restarts a driver does. Two that claimed again at once
                # could take the pipeline from each other for ever.
                stop.wait(chance.uniform(0.0, 0.5))
            finally:
                driver.home.close()

    threads = [threading.Thread(target=drive, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        _wait_until(
            lambda: (
                query(home_dsn, "SELECT count(*) >= 12 FROM tallyweir.batch")
                == [(True,)]
            ),
            "twelve batches are published",
        )
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    ((rows, distinct, last, next_offset),) = query(
        home_dsn,
        "SELECT count(*), count(DISTINCT kafka_offset), max(kafka_offset) + 1, "
        "(SELECT next_offset FROM tallyweir.partition_progress) FROM numbers",
    )
    assert rows == distinct == last == next_offset
    assert [] == query(
        home_dsn,
        "SELECT sequence FROM tallyweir.batch AS later WHERE epoch < "
        "(SELECT max(epoch) FROM tallyweir.batch WHERE sequence < later.sequence)",
    )
    assert ends, "no driver was ever superseded"
    assert set(ends) <= {"FENCED", "POSTGRES_REFUSED"}
