"""What is erased is nowhere any more, and what is missing is accounted for."""

from __future__ import annotations

import json

import numpy as np
import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.erasing import assert_verified, erase_events
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    layout_of,
    query,
)
from integration_tests.harness.whole_database import places_of, read_database
from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    failed,
    fake_fingerprint,
)
from tallyweir.sinks.postgres.audit import explain, narrate, verify
from tallyweir.sinks.postgres.catalog.catalog_reader import read_tombstones
from tallyweir.sinks.protocol.errors import ConfigurationError, FencedError
from tallyweir.sinks.protocol.offsets import TopicPartition

Connection = psycopg.Connection[TupleRow]


@pytest.mark.parametrize(
    ("event_id", "rows"),
    [
        ("0-2", {"departures": 1, "aside:duplicate_event": 1}),
        ("0-5", {"departures": 1, "aside:late_event": 1}),
        ("0-6", {"aside:filtered_event": 1}),
        ("3-101", {"aside:dead_letter": 1}),
        ("3-103", {"aside:expired_event": 1}),
    ],
)
def test_whatever_became_of_an_event_nothing_names_it_any_more(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    event_id: str,
    rows: dict[str, int],
) -> None:
    """No table of the database; verify accounts for it, and why says so only."""
    assert scenario.sequence == 3
    assert places_of(home_dsn, event_id)

    erasure = erase_events(connection, event_id)

    assert erasure.rows == rows
    assert not places_of(home_dsn, event_id)
    assert_verified(connection)
    explanation = explain(connection, PIPELINE, event_id, fake_fingerprint)
    (told,) = narrate(explanation, lambda _payload: None)
    assert told.startswith(f"Erased in act {erasure.epoch} at ")
    assert told.endswith(": request 4711")


def test_other_events_stay_as_they_are(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Beside the act, its claim and the tombstones, one row is gone and one blank."""
    assert scenario.sequence == 3
    before = read_database(home_dsn)
    erase_events(connection, "0-2")
    after = read_database(home_dsn)

    changed = {
        table: (
            len(set(before[table]) - set(after[table])),
            len(set(after[table]) - set(before[table])),
        )
        for table in before
        if before[table] != after[table]
    }
    assert changed == {
        "public.departures": (1, 0),
        "tallyweir.duplicate_event": (1, 1),
        "tallyweir.epoch_claim": (0, 1),
        "tallyweir.act": (0, 1),
        "tallyweir.erased_id": (0, 1),
        "tallyweir.erased_row": (0, 2),
    }


def test_a_condition_finds_events_and_every_copy_of_them(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Also where the condition says nothing: the repeat of a row it is true of."""
    assert scenario.sequence == 3
    erasure = erase_events(
        connection, where=("departures", "event_id LIKE '0-2%' AND '{}' = '{}'")
    )
    assert erasure.rows == {"departures": 1, "aside:duplicate_event": 1}
    assert erasure.positions == ((TOPIC, 0, 2), (TOPIC, 0, 3))
    assert not places_of(home_dsn, "0-2")
    assert_verified(connection)


@pytest.mark.parametrize(
    ("where", "code"),
    [
        (("departures_by_hour", "true"), "ERASE_NO_EVENTS"),
        (("departures", "no_such_column = 1"), "ERASE_CONDITION"),
        (("departures", "true); DELETE FROM departures; --"), "ERASE_CONDITION"),
        (("departures", "scheduled_at = 'x'"), "ERASE_CONDITION"),
    ],
)
def test_a_condition_that_means_no_events_changes_nothing(
    home_dsn: str,
    connection: Connection,
    scenario: LedgerScenario,
    where: tuple[str, str],
    code: str,
) -> None:
    """Nobody is fenced for a slip of the pen either."""
    assert scenario.sequence == 3
    before = read_database(home_dsn)
    with pytest.raises(ConfigurationError, match=code):
        erase_events(connection, where=where)
    assert before == read_database(home_dsn)


def test_a_row_that_comes_back_by_hand_is_found_and_goes_again(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Verify misses what nobody erased, and finds what somebody put back."""
    assert scenario.sequence == 3
    erase_events(connection, "0-2")
    connection.execute("DELETE FROM departures WHERE event_id = '0-1'")
    connection.commit()
    assert "append_outputs" in failed(verify(connection, PIPELINE))
    back = "INSERT INTO departures VALUES (%s, now(), %s, 0, %s)"
    connection.execute(back, ("0-1", TOPIC, 1))
    connection.execute(back, ("0-2", TOPIC, 2))
    connection.execute("UPDATE departures SET scheduled_at = '2026-03-01 01:00+00'")
    connection.commit()
    told = "\n".join(failed(verify(connection, PIPELINE))["append_outputs"])
    assert "offset 2 is there, and is erased as well" in told
    assert {"departures": 1} == erase_events(connection, "0-2").rows
    assert "append_outputs" not in failed(verify(connection, PIPELINE))


def test_a_driver_at_work_is_fenced_and_the_next_one_knows(home_dsn: str) -> None:
    """What it had staged of the event is not published after the erasure."""
    layout = layout_of(append_table("numbers", number="bigint"))
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    driver.append([(0,), (1,)])
    plan = driver.plan(2)
    staged = driver.stage(plan, {"output_0": driver.positioned(plan, [(2,), (3,)])})
    with psycopg.connect(home_dsn) as home:
        home.execute(
            "UPDATE tallyweir.pipeline SET definition = %s",
            (json.dumps(_NUMBERS_DEFINITION),),
        )
        home.commit()
        erasure = erase_events(
            home, pipeline=layout.pipeline, where=("numbers", "number = 1")
        )
        assert erasure.rows == {"numbers": 1}
        tombstones = read_tombstones(home, layout.pipeline)
    with pytest.raises(FencedError):
        driver.publish(plan, staged)
    assert [(0,)] == query(home_dsn, "SELECT number FROM numbers")
    found = tombstones.has_positions(TopicPartition("numbers", 0), np.arange(3))
    assert found.tolist() == [False, True, False]


_NUMBERS_DEFINITION = {
    "source": {
        "topic": "numbers",
        "schema": "x",
        "event_id": {"header": "id"},
        "event_time": "at",
    },
    "deduplicate": None,
    "outputs": [{"kind": "append", "table": "numbers"}],
}


def test_messages_that_wait_go_and_the_outbox_still_adds_up(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """What the relay has sent is counted as sent, and the rest as erased."""
    _add_outbox(connection, scenario)
    assert_verified(connection)

    erasure = erase_events(connection, "0-9")

    assert erasure.rows["outbox"] == 1
    assert not places_of(home_dsn, "0-9")
    assert_verified(connection)
    connection.execute("DELETE FROM tallyweir.outbox WHERE kafka_offset = 10")
    connection.commit()
    assert "outbox" in failed(verify(connection, PIPELINE))


def _add_outbox(connection: Connection, scenario: LedgerScenario) -> None:
    """Let the last batch have published to an outbox; the first of it was sent."""
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_insert(definition, "
        """'{outputs,0}', '{"kind": "outbox", "table": "outbox:alarms"}')"""
    )
    committed = query_rows(
        connection,
        "SELECT event_id, kafka_topic, kafka_partition, kafka_offset FROM departures "
        "WHERE kafka_partition = 0 AND kafka_offset >= 9 ORDER BY kafka_offset",
    )
    assert [row[0] for row in committed] == ["0-9", "0-10"]
    connection.execute(
        "INSERT INTO tallyweir.batch_output VALUES (%s, %s, 'outbox:alarms', 'outbox', "
        "2, 2, 0, 0)",
        (PIPELINE, scenario.sequence),
    )
    for event_id, *position in committed:
        connection.execute(
            "INSERT INTO tallyweir.outbox VALUES (%s, %s, %s, %s, %s, 'alarms', %s, "
            "NULL, %s)",
            (PIPELINE, scenario.sequence, *position, event_id, event_id.encode()),
        )
    connection.commit()


def query_rows(connection: Connection, statement: str) -> list[TupleRow]:
    """Read rows, each as a tuple."""
    return connection.execute(statement.encode()).fetchall()


def test_results_and_state_of_a_key_go_by_name(
    home_dsn: str, connection: Connection, scenario: LedgerScenario
) -> None:
    """Results have no position, so the ledger keeps how many went of each batch."""
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_insert(definition, "
        """'{outputs,0}', '{"kind": "stateful", "table": "trips"}')"""
    )
    connection.execute("CREATE TABLE trips (who text, tallyweir_sequence bigint)")
    connection.execute("INSERT INTO trips VALUES ('ann', 3), ('ann', 2), ('bob', 3)")
    connection.execute(
        "INSERT INTO tallyweir.batch_output SELECT pipeline, sequence, 'trips', "
        "'stateful', 0, CASE sequence WHEN 3 THEN 2 WHEN 2 THEN 1 ELSE 0 END, 0, 0 "
        "FROM tallyweir.batch"
    )
    for key in ('["ann"]', '["bob"]'):
        connection.execute(
            "INSERT INTO tallyweir.keyed_state VALUES "
            "('departures', 'trips', %s, 'n', '', '1', 1, NULL, 3)",
            (key,),
        )
        connection.execute(
            "INSERT INTO tallyweir.keyed_timer VALUES "
            "('departures', 'trips', %s, 't', 0, 'event', now(), 3)",
            (key,),
        )
    connection.commit()
    assert scenario.sequence == 3
    assert_verified(connection)

    erasure = erase_events(connection, where=("trips", "who = 'ann'"), keys=("ann",))

    assert erasure.rows == {"trips": 2, "keyed_state": 1, "keyed_timer": 1}
    assert not places_of(home_dsn, "ann")
    assert places_of(home_dsn, "bob") == {
        "public.trips",
        "tallyweir.keyed_state",
        "tallyweir.keyed_timer",
    }
    assert_verified(connection)


def test_ids_that_belong_to_sources_need_the_source(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Two shops may have an order 17 each."""
    assert scenario.sequence == 3
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        """'{source,event_id}', '{"header": "ce_id"}')"""
    )
    connection.commit()
    with pytest.raises(ConfigurationError, match="ERASE_SOURCE_MISSING"):
        erase_events(connection, "3-101")
    assert erase_events(connection, "3-101", has_source=True).rows == {
        "aside:dead_letter": 1
    }
