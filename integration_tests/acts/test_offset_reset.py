"""Positions that are moved: what is skipped, read again, or refused."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import query
from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    check_of,
    failed,
    fake_fingerprint,
)
from tallyweir.sinks.postgres.audit import accept_gaps, explain, narrate, verify
from tallyweir.sinks.postgres.steering import MovedPosition, reset_offsets
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

Connection = psycopg.Connection[TupleRow]
_POSITIONS = (
    "SELECT partition, next_offset FROM tallyweir.partition_progress ORDER BY 1"
)


def _broker(
    *, log_start: int = 0, topic_id: str = "id"
) -> dict[TopicPartition, BrokerPosition]:
    return {
        TopicPartition(TOPIC, partition): BrokerPosition(
            topic_id=topic_id, log_start_offset=log_start, log_end_offset=1000
        )
        for partition in (0, 3, 7)
    }


def _reset(
    connection: Connection,
    targets: Mapping[int, int],
    *,
    dry_run: bool = False,
    broker: Mapping[TopicPartition, BrokerPosition] | None = None,
) -> tuple[MovedPosition, ...]:
    return reset_offsets(
        connection,
        PIPELINE,
        {TopicPartition(TOPIC, partition): to for partition, to in targets.items()},
        broker or _broker(),
        reason="a test",
        dry_run=dry_run,
    )


def _go_back(scenario: LedgerScenario, partition: int, target: int) -> MovedPosition:
    """Move one partition's position, and let the next driver begin there."""
    (move,) = _reset(scenario.connection, {partition: target})
    scenario.next_offsets[partition] = target
    scenario.epoch += 1
    scenario.claim()
    return move


def _told(connection: Connection, event_id: str) -> list[str]:
    found = explain(connection, PIPELINE, event_id, fake_fingerprint)
    return list(narrate(found, lambda payload: payload.hex()))


def test_skipped_records_are_no_gap(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """The act has the reason; verify says how many there are."""
    (move,) = _reset(connection, {0: 20})
    assert (move.stood_at, move.target, move.skipped) == (12, 20, 8)
    assert failed(verify(connection, PIPELINE)) == {}
    scenario.next_offsets[0] = 20
    scenario.epoch += 1
    scenario.claim()
    scenario.publish({0: "CC"})
    receipt = verify(connection, PIPELINE)
    assert failed(receipt) == {}
    note = check_of(receipt, "offset_ranges").note
    assert note == "8 offsets were skipped by offsets reset"
    ((kind, reason, after),) = connection.execute(
        "SELECT kind, reason, after_sequence FROM tallyweir.act"
    ).fetchall()
    assert (kind, reason, after) == ("offsets reset", "a test", 3)


def test_records_read_again_are_duplicates_or_get_another_chance(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Each row is of the batch that made it, and both readings are told of."""
    move = _go_back(scenario, 0, 2)
    assert (move.read_again, move.batches, move.cut) == (10, 3, 1)
    assert move.put_aside == {
        "dead_letter": 1,
        "duplicate_event": 1,
        "filtered_event": 1,
    }
    assert move.rows == {"departures": 6}
    assert failed(verify(connection, PIPELINE)) == {}
    # One batch ends among the records read again, one behind them.
    scenario.publish({0: "RDRRC-R", 3: "C"})
    assert failed(verify(connection, PIPELINE)) == {}
    scenario.publish({0: "RRCCX"})
    receipt = verify(connection, PIPELINE)
    assert failed(receipt) == {}
    assert check_of(receipt, "offset_ranges").note == (
        "10 offsets were to be read again by offsets reset"
    )
    dead, again = _told(connection, "0-11")[:2]
    assert "became a dead letter in batch 3" in dead
    assert "A copy, read again, at orders[0] offset 11 was committed" in again
    assert "batch 5" in again
    first, repeat = _told(connection, "0-4")[:2]
    assert "was committed to departures in batch 2" in first
    assert "read again, at orders[0] offset 4 was dropped as a duplicate" in repeat
    assert "batch 4" in repeat


def test_records_may_be_read_a_third_time(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """And positions skipped, given up and moved again, all after one batch."""
    _go_back(scenario, 0, 2)
    scenario.publish({0: "RDRRF-RRRX"})
    _go_back(scenario, 0, 6)
    scenario.publish({0: "C-RR"})
    _go_back(scenario, 0, 40)
    _go_back(scenario, 0, 30)
    accept_gaps(connection, PIPELINE, _broker(log_start=35) | _at(3), reason="gone")
    _go_back(scenario, 0, 50)
    scenario.publish({0: "CX"})
    _go_back(scenario, 0, 10)
    scenario.publish({0: "RC" + "C" * 28})
    _go_back(scenario, 0, 4)
    scenario.publish({0: "RRR-RRRRRR" + "R" * 26 + "C" * 10 + "RC"})
    assert failed(verify(connection, PIPELINE)) == {}


def _at(partition: int) -> dict[TopicPartition, BrokerPosition]:
    return {
        TopicPartition(TOPIC, partition): BrokerPosition(
            topic_id="id", log_start_offset=0, log_end_offset=1000
        )
    }


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM departures WHERE event_id = '0-11'",
        "DELETE FROM departures WHERE event_id = '0-4'",
        "UPDATE departures SET kafka_offset = 3 WHERE event_id = '0-4'",
        "INSERT INTO departures SELECT * FROM departures WHERE event_id = '0-11'",
        "DELETE FROM tallyweir.dead_letter WHERE kafka_offset = 11",
        "DELETE FROM tallyweir.duplicate_event WHERE kafka_offset = 4 AND sequence = 4",
        "DELETE FROM tallyweir.offset_reset",
        "UPDATE tallyweir.offset_reset SET until_offset = 3",
    ],
)
def test_what_was_read_again_is_held_against_the_ledger_all_the_same(
    connection: Connection, scenario: LedgerScenario, damage: str
) -> None:
    """A replay is no excuse for a row that is missing or too many."""
    _go_back(scenario, 0, 2)
    scenario.publish({0: "RDRRC-R"})
    scenario.publish({0: "RRCCX"})
    assert failed(verify(connection, PIPELINE)) == {}
    connection.execute(damage.encode())
    connection.commit()
    assert failed(verify(connection, PIPELINE))


def test_a_row_that_every_reading_put_aside_is_found(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Being read again explains one row, of a reading that committed it."""
    _go_back(scenario, 0, 2)
    scenario.publish({0: "RDRRF-RRRX"})
    assert failed(verify(connection, PIPELINE)) == {}
    connection.execute(
        "INSERT INTO departures SELECT 'forged', scheduled_at, kafka_topic, "
        "kafka_partition, 11 FROM departures WHERE event_id = '0-4'"
    )
    connection.commit()
    (violations,) = (
        found
        for name, found in failed(verify(connection, PIPELINE)).items()
        if name == "append_outputs"
    )
    assert any("is a dead letter as well" in told for told in violations)


def test_a_dry_run_tells_the_same_and_changes_nothing(
    connection: Connection, home_dsn: str, scenario: LedgerScenario
) -> None:
    """Nobody is fenced by it."""
    before = query(home_dsn, _POSITIONS)
    told = _reset(connection, {0: 2, 3: 200}, dry_run=True)
    assert query(home_dsn, _POSITIONS) == before
    assert query(home_dsn, "SELECT max(epoch) FROM tallyweir.epoch_claim") == [
        (scenario.epoch,)
    ]
    assert _reset(connection, {0: 2, 3: 200}) == told
    assert query(home_dsn, _POSITIONS) == [(0, 2), (3, 200)]


def test_what_would_come_twice_is_refused(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Where a batch's IDs are gone, or none were ever kept; skipping is allowed."""
    connection.execute("DELETE FROM tallyweir.seen_id_run WHERE sequence = 2")
    connection.commit()
    _expect("RESET_WOULD_REPEAT", connection, {0: 5})
    _go_back(scenario, 0, 9)
    for change in (
        "jsonb_set(definition, '{deduplicate}', 'null')",
        'definition || \'{"guarantee": "at_least_once"}\'',
    ):
        connection.execute(f"UPDATE tallyweir.pipeline SET definition = {change}")
        connection.commit()
        _expect("RESET_WOULD_REPEAT", connection, {0: 8})
        _reset(connection, {0: scenario.next_offsets[0] + 1})
        scenario.next_offsets[0] += 1


def test_a_position_that_makes_no_sense_is_refused(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Kafka must have it, and the pipeline must read it."""
    _expect("NOTHING_TO_RESET", connection, {0: scenario.next_offsets[0]})
    _expect("POSITION_UNKNOWN", connection, {7: 1})
    _expect("OFFSET_NOT_IN_KAFKA", connection, {0: 1001})
    _expect("OFFSET_NOT_IN_KAFKA", connection, {0: 4}, _broker(log_start=5))
    _expect("TOPIC_RECREATED", connection, {0: 4}, _broker(topic_id="another"))
    connection.execute(
        "INSERT INTO tallyweir.batch_branch (pipeline, sequence, branch, gid) "
        "VALUES ('departures', 3, 'billing.0', 'gid')"
    )
    connection.commit()
    with pytest.raises(RetryableError, match="BATCH_IN_DOUBT"):
        _reset(connection, {0: 4})


def _expect(
    code: str,
    connection: Connection,
    targets: Mapping[int, int],
    broker: Mapping[TopicPartition, BrokerPosition] | None = None,
) -> None:
    before = connection.execute(_POSITIONS).fetchall()
    connection.commit()
    with pytest.raises(ConfigurationError) as raised:
        _reset(connection, targets, broker=broker)
    assert raised.value.code == code
    assert connection.execute(_POSITIONS).fetchall() == before
    connection.commit()
