"""Charts are drawn of what the ledger has of its batches."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.server.naming import application_name
from tallyweir.sinks.protocol.measures import age_bucket

_SLOT_S, _SLOTS = 10, 180


@pytest.fixture
def recent(
    scenario: LedgerScenario, connection: psycopg.Connection[TupleRow]
) -> LedgerScenario:
    """The scenario's batches, published just now, all in one slot of time."""
    connection.execute(
        "UPDATE tallyweir.batch SET published_at = "
        "date_bin('10 s', now() - interval '10 s', 'epoch') + interval '1 s'"
    )
    connection.execute(
        "UPDATE tallyweir.batch SET planned_at = published_at - interval '3 s', "
        "staged_at = published_at - interval '1 s'"
    )
    ages = {age_bucket(0.2): 90, age_bucket(4.0): 9, age_bucket(60.0): 1}
    measures = {"ages": ages, "ids": {"asked": 200, "looked_up": 8, "met": 6}}
    for sequence in (1, 2):
        connection.execute(
            "INSERT INTO tallyweir.batch_measures VALUES (%s, %s, %s)",
            (PIPELINE, sequence, Jsonb(measures)),
        )
    # As a version before has written it.
    connection.execute(
        "INSERT INTO tallyweir.batch_measures VALUES (%s, 3, '{}')", (PIPELINE,)
    )
    connection.commit()
    return scenario


def test_batches_of_a_slot_are_put_together(
    recent: LedgerScenario, connection: psycopg.Connection[TupleRow]
) -> None:
    """Their events, and not their percentiles; measures that lack them add nothing."""
    assert recent.sequence == 3
    charts = audit.read_charts(connection, PIPELINE, slot_s=_SLOT_S, slots=_SLOTS)
    (figures,) = charts.committed.values()
    assert figures.latency_p50_s == pytest.approx(0.2, rel=0.1)
    assert figures.latency_p95_s == pytest.approx(4.0, rel=0.1)
    assert figures.latency_p99_s == pytest.approx(4.0, rel=0.1)
    assert figures.looked_up_share == 16 / 400
    assert figures.false_positive_share == 4 / 400
    (at,) = charts.committed
    assert charts.stage_s == {at: 2.0}
    assert charts.publish_s == {at: 1.0}
    assert charts.dead == {"UNDECODABLE": {at: 2}}
    assert audit.read_recent_figures(connection, PIPELINE) == figures


def test_without_batches_nothing_is_known(
    scenario: LedgerScenario, connection: psycopg.Connection[TupleRow]
) -> None:
    """The scenario's were published long ago."""
    assert scenario.sequence == 3
    charts = audit.read_charts(connection, PIPELINE, slot_s=_SLOT_S, slots=_SLOTS)
    assert not charts.committed
    assert not charts.dead
    figures = audit.read_recent_figures(connection, PIPELINE)
    assert (figures.latency_p99_s, figures.looked_up_share) == (None, None)


def test_batches_that_only_fire_timers_move_nothing(
    recent: LedgerScenario, home_dsn: str, connection: psycopg.Connection[TupleRow]
) -> None:
    """A pipeline whose offsets do not move is never green, by status and overview."""
    (number,) = connection.execute(
        "SELECT pipeline_number FROM tallyweir.pipeline"
    ).fetchone() or (0,)
    connection.commit()
    driver = psycopg.connect(
        home_dsn, application_name=application_name(number, recent.epoch)
    )
    with driver:
        assert _states(connection) == {audit.PipelineState.RUNNING}
        connection.execute(
            "UPDATE tallyweir.batch SET published_at = now() - interval '61 s'"
        )
        connection.execute(
            "INSERT INTO tallyweir.batch (pipeline, sequence, epoch, spark_batch_id, "
            "checksum, planned_at, staged_at, published_at) "
            "VALUES (%s, 4, %s, NULL, 0, now(), now(), now())",
            (PIPELINE, recent.epoch),
        )
        connection.execute("UPDATE tallyweir.pipeline SET last_sequence = 4")
        connection.commit()
        assert _states(connection) == {audit.PipelineState.STALLED}
        (summary,) = audit.read_overview(connection)
        assert "Timers fire" in (summary.cause(5) or "")


def _states(connection: psycopg.Connection[TupleRow]) -> set[audit.PipelineState]:
    (summary,) = audit.read_overview(connection)
    return {summary.state(5), audit.read_status(connection, PIPELINE).state(5)}
