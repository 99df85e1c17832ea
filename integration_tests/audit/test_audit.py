"""The audits against a real server: what is right passes, and nothing is changed."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import execute
from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    check_of,
    failed,
)
from tallyweir.sinks.postgres.audit import (
    PipelineState,
    Verdict,
    check_recount,
    read_recount_spans,
    read_status,
    verify,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import snapshot
from tallyweir.sinks.protocol.errors import ConfigurationError, TallyweirError
from tallyweir.sinks.protocol.offsets import TopicPartition

Connection = psycopg.Connection[TupleRow]


def test_a_correct_ledger_is_verified(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Every check holds, looked at something, and the totals add up."""
    assert scenario.sequence == 3
    receipt = verify(connection, PIPELINE)

    assert failed(receipt) == {}
    assert receipt.is_verified
    names = ("branches", "window_groups", "row_values")
    absent = [check_of(receipt, name) for name in names]
    assert all(check.verdict is Verdict.NOT_APPLICABLE for check in absent)
    others = [check for check in receipt.checks if check not in absent]
    assert all(check.verdict is Verdict.OK for check in others)
    assert all(check.checked > 0 for check in others)
    assert receipt.databases == ("home",)
    totals = receipt.totals
    assert (totals.read, totals.committed, totals.duplicate) == (21, 15, 2)
    assert (totals.dead, totals.expired, totals.filtered) == (2, 1, 1)
    assert totals.dead_by_reason == {"UNDECODABLE": 2}
    assert (totals.batches, totals.drivers) == (3, 2)


def test_a_pipeline_without_batches_is_not_verified(connection: Connection) -> None:
    """A check over nothing proves nothing."""
    LedgerScenario(connection=connection).register()

    receipt = verify(connection, PIPELINE)

    assert not receipt.is_verified
    assert receipt.summary == "nothing committed yet"
    assert receipt.failed == ()


def test_an_unknown_pipeline_names_the_known_ones(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A typo is answered with what could have been meant."""
    assert scenario.sequence == 3
    with pytest.raises(ConfigurationError, match=r"PIPELINE_UNKNOWN.*it has depart"):
        verify(connection, "departure")


def test_a_database_without_a_ledger_says_so(connection: Connection) -> None:
    """A wrong DSN is told from a pipeline that never started."""
    connection.execute("DROP SCHEMA tallyweir CASCADE")
    connection.commit()
    with pytest.raises(ConfigurationError, match="LEDGER_MISSING"):
        verify(connection, PIPELINE)


def test_without_deduplication_the_catalog_is_not_applicable(
    connection: Connection,
) -> None:
    """What a pipeline does not have is neither ok nor failed."""
    scenario = LedgerScenario(connection=connection, deduplicate=False).register()
    scenario.publish({0: "CC"})

    receipt = verify(connection, PIPELINE)

    assert check_of(receipt, "seen_ids").verdict is Verdict.NOT_APPLICABLE
    assert receipt.is_verified


def test_dropped_late_events_owe_no_rows(connection: Connection) -> None:
    """An output that drops late events only counts them."""
    scenario = LedgerScenario(connection=connection, late="drop").register()
    scenario.publish({0: "CLL"})

    assert failed(verify(connection, PIPELINE)) == {}


@pytest.mark.parametrize(
    ("before", "after"), [("side_table", "drop"), ("drop", "side_table")]
)
def test_a_batch_owes_late_events_by_the_definition_it_was_published_under(
    connection: Connection, before: str, after: str
) -> None:
    """Whatever the output does with them since."""
    scenario = LedgerScenario(connection=connection, late=before).register()
    scenario.publish({0: "CLL"})
    scenario.change_late(after)
    scenario.publish({0: "LC"})

    assert failed(verify(connection, PIPELINE)) == {}


def test_an_output_that_is_gone_owes_what_it_owed(connection: Connection) -> None:
    """Dropped late events are not asked for because nobody says ``drop`` any more."""
    scenario = LedgerScenario(connection=connection, late="drop").register()
    scenario.publish({0: "CLL"})
    scenario.rename_windows("departures_anew")
    scenario.publish({0: "LC"})

    assert failed(verify(connection, PIPELINE)) == {}


@pytest.mark.parametrize("late", ["side_table", "drop"])
def test_a_batch_that_does_not_say_owes_late_events_by_the_definition_in_force(
    connection: Connection, late: str
) -> None:
    """A driver of an older version writes down how many there were, and no more."""
    scenario = LedgerScenario(connection=connection, late=late).register()
    scenario.publish({0: "CLL"})
    connection.execute("UPDATE tallyweir.batch_output SET late_kept = NULL")
    connection.commit()
    assert failed(verify(connection, PIPELINE)) == {}

    scenario.change_late("drop" if late == "side_table" else "side_table")
    assert "side_tables" in failed(verify(connection, PIPELINE))


def test_forgotten_buckets_are_reported_as_not_checkable(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """IDs beyond the horizon are gone on purpose; the receipt says how many batches."""
    connection.execute(
        "UPDATE tallyweir.pipeline SET watermark = watermark + interval '7 days'"
    )
    connection.execute("DELETE FROM tallyweir.seen_id_run WHERE sequence < 3")
    connection.commit()

    check = check_of(verify(connection, PIPELINE), "seen_ids")

    assert scenario.sequence == 3
    assert check.verdict is Verdict.OK
    assert check.note.startswith("2 of 3 batches reach beyond the horizon")


def test_an_output_that_was_added_owes_nothing_for_older_batches(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Batches from before an output existed are not held against it."""
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        """'{outputs,2}', '{"kind": "append", "table": "copies"}')"""
    )
    connection.execute("CREATE TABLE copies (LIKE departures)")
    connection.commit()

    assert scenario.sequence == 3
    assert failed(verify(connection, PIPELINE)) == {}


def test_status_tells_which_partitions_hold_the_watermark(
    connection: Connection, scenario: LedgerScenario, home_dsn: str
) -> None:
    """A partition is active, awaited until its first event, or idle."""
    assert scenario.sequence == 3

    def clocks() -> list[tuple[bool, str]]:
        return [
            (part.watermark is None, part.clock.value)
            for part in read_status(connection, PIPELINE).partitions
        ]

    execute(
        home_dsn,
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(jsonb_set(definition, "
        "'{source,watermark_delay}', '\"2 hours\"'), '{source,idle_timeout}', "
        "'\"90 seconds\"')",
        "UPDATE tallyweir.partition_progress SET active_at = now() "
        "- make_interval(secs => CASE WHEN partition = 0 THEN 91 ELSE 60 END)",
    )
    assert clocks() == [(False, "idle"), (False, "active")]
    first, _ = read_status(connection, PIPELINE).partitions
    assert first.event_time_max is not None
    assert first.watermark == first.event_time_max - timedelta(hours=2)
    execute(
        home_dsn,
        "UPDATE tallyweir.partition_progress SET event_time_max = NULL "
        "WHERE partition <> 0",
    )
    assert clocks() == [(False, "idle"), (True, "awaited")]


def test_status_tells_where_the_pipeline_stands(
    connection: Connection, scenario: LedgerScenario, home_dsn: str
) -> None:
    """A driver counts as alive while it has a session under its epoch's name."""
    assert scenario.sequence == 3
    found = read_status(connection, PIPELINE)

    assert {str(p.position): p.stored.next_offset for p in found.partitions} == {
        "orders[0]": 12,
        "orders[3]": 110,
    }
    assert found.last_batch is not None
    assert (found.last_batch.sequence, found.last_batch.read) == (3, 3)
    # Planned and published in the same moments, a second apart: 21 events in 2 s.
    assert (found.minute_rate, found.batches_rate) == (0.0, 10.5)
    assert found.catalog_ids == 15
    assert found.state(5) is PipelineState.STOPPED
    number = connection.execute(
        "SELECT pipeline_number FROM tallyweir.pipeline"
    ).fetchone()
    connection.commit()
    assert number is not None
    with psycopg.connect(home_dsn, application_name=f"tallyweir p{number[0]} e2"):
        found = read_status(connection, PIPELINE)
    assert found.state(0) is PipelineState.CAUGHT_UP
    assert found.state(5) is PipelineState.STALLED


def test_a_recount_names_lost_ranges_and_differences(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Only batches that Kafka holds as a whole are counted again."""
    assert scenario.sequence == 3
    spans = read_recount_spans(
        connection, PIPELINE, {TopicPartition(TOPIC, 0): 2, TopicPartition(TOPIC, 3): 0}
    )

    assert [(str(span.offsets), span.read, str(span.lost)) for span in spans] == [
        ("orders[0] 4..12", 7, "orders[0] 0..4"),
        ("orders[3] 100..110", 10, "None"),
    ]
    check = check_recount(spans, (7, 9))
    assert check.violations == (
        "orders[3] 100..110: Kafka holds 9 records, the ledger says 10 were read",
    )
    assert check.note == "not checkable, deleted by retention since: orders[0] 0..4"


def test_an_audit_reads_one_snapshot(
    connection: Connection, scenario: LedgerScenario, home_dsn: str
) -> None:
    """A batch that commits in the middle of an audit is seen whole or not at all."""
    assert scenario.sequence == 3
    count = "SELECT count(*) FROM departures"
    with snapshot(connection, doing="testing"):
        before = connection.execute(count).fetchone()
        with psycopg.connect(home_dsn) as other:
            other.execute("DELETE FROM departures")
        assert connection.execute(count).fetchone() == before == (15,)


def test_an_audit_cannot_write(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Whoever looks must not change what he looks at."""
    assert scenario.sequence == 3
    with (
        pytest.raises(TallyweirError, match="read-only"),
        snapshot(connection, doing="testing"),
    ):
        connection.execute("DELETE FROM departures")

    assert verify(connection, PIPELINE).is_verified
