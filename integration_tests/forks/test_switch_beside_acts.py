"""A switch beside other acts: positions that were moved, snapshots that were taken."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.forked_ledger import add_windows, publish_as
from integration_tests.ledger_scenario import PIPELINE, TOPIC, LedgerScenario, failed
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.steering import ActRequest, Switch
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

Connection = psycopg.Connection[TupleRow]

_NEW = "departures-2"


@pytest.fixture
def scenario(connection: Connection, scenario: LedgerScenario) -> LedgerScenario:
    """The ledger's, with its window table."""
    add_windows(connection)
    return scenario


def _fork(connection: Connection) -> None:
    connection.rollback()
    request = ActRequest(pipeline=PIPELINE, kind="fork", reason="v2")
    steering.fork(connection, request, _NEW)


def _switch(
    connection: Connection, front: str = PIPELINE, shadowing: str = _NEW
) -> Switch:
    connection.rollback()
    request = ActRequest(pipeline=front, kind="switch", reason="v2")
    return steering.switch(connection, request, shadowing)


def test_what_was_read_before_a_reset_is_not_taken_from_readers(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A position that goes back leaves its rows, so the fork must have them, too."""
    _fork(connection)
    publish_as(connection, PIPELINE)
    steering.reset_offsets(
        connection,
        PIPELINE,
        {TopicPartition(TOPIC, 0): 2},
        {
            TopicPartition(TOPIC, partition): BrokerPosition(
                topic_id="id", log_start_offset=0, log_end_offset=1000
            )
            for partition in scenario.next_offsets
        },
        reason="v2",
    )
    with pytest.raises(RetryableError, match=r"SWITCH_BEHIND.*orders\[0\] by 1"):
        _switch(connection)
    publish_as(connection, _NEW)
    assert _switch(connection).tables
    connection.rollback()
    for pipeline in (PIPELINE, _NEW):
        assert failed(verify(connection, pipeline)) == {}


def test_a_restore_past_a_switch_is_refused_as_one(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """The definition is another one as well, and no former file brings it back."""
    assert scenario.sequence == 3
    connection.rollback()
    steering.take_snapshot(connection, PIPELINE, "before", reason="v2")
    _fork(connection)
    for front, shadowing in ((PIPELINE, _NEW), (_NEW, PIPELINE)):
        _switch(connection, front, shadowing)
        with pytest.raises(ConfigurationError, match=r"RESTORE_PAST_ACT.*switch"):
            steering.restore(connection, PIPELINE, "before", {}, reason="v2")
