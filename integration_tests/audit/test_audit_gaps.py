"""Offsets that retention took: accepted with a reason, or a violation."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    check_of,
    failed,
)
from tallyweir.sinks.postgres.audit import accept_gaps, find_gaps, verify
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

Connection = psycopg.Connection[TupleRow]


def test_an_accepted_gap_continues_the_ranges(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """What a person gave up with a reason is a gap no more, and reading goes on."""
    broker = _broker({0: 20, 3: 105})

    (gap,) = accept_gaps(connection, PIPELINE, broker, reason=" disk was full ")
    assert failed(verify(connection, PIPELINE)) == {}
    scenario.next_offsets[0] = 20
    scenario.publish({0: "CC"})

    assert (gap.lost.from_offset, gap.lost.until_offset) == (12, 20)
    assert connection.execute(
        "SELECT partition, from_offset, until_offset, after_sequence, reason "
        "FROM tallyweir.accepted_gap"
    ).fetchall() == [(0, 12, 20, 3, "disk was full")]
    connection.commit()
    receipt = verify(connection, PIPELINE)
    assert failed(receipt) == {}
    note = check_of(receipt, "offset_ranges").note
    assert note == "8 offsets were given up by accept-gap"


def test_a_gap_of_a_partition_that_is_new_is_accepted_too(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A partition that was added is read from 0, so its start may be gone as well."""
    broker = _broker({0: 0, 3: 0, 7: 40})

    accept_gaps(connection, PIPELINE, broker, reason="added late")
    scenario.next_offsets[7] = 40
    scenario.publish({7: "C"})

    assert failed(verify(connection, PIPELINE)) == {}


def test_a_gap_that_nobody_accepted_stays_a_gap(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Reading on past lost offsets without a reason is reported."""
    scenario.next_offsets[0] = 20
    scenario.publish({0: "CC"})

    assert check_of(verify(connection, PIPELINE), "offset_ranges").violations == (
        "offset gap 12..20 on orders[0] after batch 3",
    )


def test_without_a_gap_nothing_is_accepted(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Offsets that can still be read are never skipped."""
    assert scenario.sequence == 3
    with pytest.raises(ConfigurationError, match="NO_GAP"):
        accept_gaps(connection, PIPELINE, _broker({0: 12, 3: 0}), reason="hurry")

    assert failed(verify(connection, PIPELINE)) == {}


def test_a_gap_needs_a_reason(connection: Connection, scenario: LedgerScenario) -> None:
    """A blank is no reason, and nothing changes without one."""
    assert scenario.sequence == 3
    with pytest.raises(ConfigurationError, match="GAP_REASON_MISSING"):
        accept_gaps(connection, PIPELINE, _broker({0: 20}), reason=" \t")

    assert failed(verify(connection, PIPELINE)) == {}


def test_looking_for_gaps_changes_nothing(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A dry run tells the same gaps and leaves the pipeline where it was."""
    assert scenario.sequence == 3
    (gap,) = find_gaps(connection, PIPELINE, _broker({0: 20}))

    assert str(gap.lost) == "orders[0] 12..20"
    assert verify(connection, PIPELINE).is_verified


def test_a_recreated_topic_is_no_gap(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """The offsets of another topic of the same name say nothing about the loss."""
    assert scenario.sequence == 3
    with pytest.raises(ConfigurationError, match="TOPIC_RECREATED"):
        accept_gaps(
            connection, PIPELINE, _broker({0: 20}, topic_id="other"), reason="x"
        )


def test_a_publish_meanwhile_makes_the_gap_wait_and_give_up(
    connection: Connection, scenario: LedgerScenario, home_dsn: str
) -> None:
    """The pipeline's row orders both; a wait without end would block an operator."""
    assert scenario.sequence == 3
    with psycopg.connect(home_dsn) as publisher:
        # The weakest lock that an update takes: the gap's foreign key alone would not
        # wait for it.
        publisher.execute("SELECT FROM tallyweir.pipeline FOR NO KEY UPDATE")
        with pytest.raises(RetryableError, match="lock timeout"):
            accept_gaps(
                connection,
                PIPELINE,
                _broker({0: 20}),
                reason="x",
                lock_timeout_ms=100,
            )

    assert verify(connection, PIPELINE).is_verified


def _broker(
    starts: dict[int, int], topic_id: str = "id"
) -> dict[TopicPartition, BrokerPosition]:
    return {
        TopicPartition(TOPIC, partition): BrokerPosition(
            topic_id=topic_id, log_start_offset=start, log_end_offset=1000
        )
        for partition, start in starts.items()
    }
