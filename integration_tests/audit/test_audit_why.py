"""Why tells every copy of an event, and what cannot be known."""

from __future__ import annotations

import json

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    fake_fingerprint,
)
from tallyweir.sinks.postgres.audit import explain, narrate, narrate_unknown
from tallyweir.sinks.postgres.audit.fate import Fate
from tallyweir.sinks.protocol.offsets import TopicPartition

Connection = psycopg.Connection[TupleRow]


def test_every_copy_of_an_id_is_told_in_order(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """The committed copy comes first, its repeat after it, each with its batch."""
    assert scenario.sequence == 3
    explanation = explain(connection, PIPELINE, "0-2", fake_fingerprint)

    assert [(s.fate, s.offset) for s in explanation.sightings] == [
        (Fate.COMMITTED, 2),
        (Fate.DUPLICATE, 3),
    ]
    assert len(explanation.catalog_hits) == 1
    told = list(narrate(explanation, lambda _payload: None))
    assert told[:2] == [
        (
            "A copy at orders[0] offset 2 was committed to departures in batch 1, "
            "published at 2026-03-02 00:00:01 UTC by the driver of epoch 1."
        ),
        (
            "Copy 2 at orders[0] offset 3 was dropped as a duplicate in batch 1, "
            "published at 2026-03-02 00:00:01 UTC by the driver of epoch 1."
        ),
    ]
    assert told[2:3] == [
        (
            "The ID is remembered as seen (bucket of 2026-03-01 01:00:00 UTC), first "
            "in batch 1, published at 2026-03-02 00:00:01 UTC by the driver of "
            "epoch 1; further copies are dropped."
        )
    ]


@pytest.mark.parametrize(
    ("event_id", "fates", "said"),
    [
        ("3-101", [Fate.DEAD], "UNDECODABLE, no magic byte"),
        ("3-103", [Fate.EXPIRED], "beyond the horizon"),
        ("0-5", [Fate.COMMITTED, Fate.LATE], "too late for departures_by_hour"),
    ],
)
def test_each_fate_is_explained(
    connection: Connection,
    scenario: LedgerScenario,
    event_id: str,
    fates: list[Fate],
    said: str,
) -> None:
    """Whatever became of an event is found by its ID, and said."""
    assert scenario.sequence == 3
    explanation = explain(connection, PIPELINE, event_id, fake_fingerprint)

    assert [sighting.fate for sighting in explanation.sightings] == fates
    assert said in "\n".join(narrate(explanation, lambda payload: payload.hex()))


def test_an_id_that_is_a_number_is_found_by_its_text(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A person types text, whatever type the column has."""
    connection.execute(
        "ALTER TABLE departures ALTER COLUMN event_id TYPE bigint "
        "USING replace(event_id, '-', '')::bigint"
    )
    connection.commit()

    assert scenario.sequence == 3
    explanation = explain(connection, PIPELINE, "02", fake_fingerprint)
    assert explanation.sightings == ()
    explanation = explain(connection, PIPELINE, "3102", fake_fingerprint)
    assert [s.offset for s in explanation.sightings] == [102]


def test_an_unknown_id_says_what_cannot_be_known(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """An empty answer names what was searched, and where the event may still be."""
    connection.execute("UPDATE tallyweir.dead_letter SET event_id = NULL")
    connection.commit()

    explanation = explain(connection, PIPELINE, "never", fake_fingerprint)
    told = "\n".join(narrate_unknown(explanation, {TopicPartition(TOPIC, 0): 8}))

    assert scenario.sequence == 3
    assert not explanation.is_known
    assert "the rows of departures" in told
    assert "the seen-ID catalog" in told
    assert "2 dead letters have no readable ID" in told
    assert "before 2026-02-22 03:00:00 UTC may have been forgotten" in told
    assert "8 on orders[0]" in told


def test_ids_that_belong_to_sources_are_told_with_that_doubt(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Only the catalog knows the source, so what else has the ID may be another's."""
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        """'{source,event_id}', '{"header": "ce_id"}')"""
    )
    connection.commit()

    assert scenario.sequence == 3
    explanation = explain(connection, PIPELINE, "3-101", fake_fingerprint)
    assert [sighting.fate for sighting in explanation.sightings] == [Fate.DEAD]
    told = "\n".join(narrate(explanation, lambda _payload: None))
    assert "they may belong to another source" in told
    unknown = explain(connection, PIPELINE, "never", fake_fingerprint)
    assert "check that --source is the event's" in "\n".join(
        narrate_unknown(unknown, {})
    )


def test_an_output_whose_condition_left_a_copy_out_is_told(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """By the condition of the version that was in force, not by today's."""
    connection.execute("CREATE TABLE large (LIKE departures)")
    connection.execute(
        "INSERT INTO tallyweir.batch_output (pipeline, sequence, output_table, kind, "
        "events, rows, late, revised) SELECT pipeline, sequence, 'large', 'append', 0, "
        "0, 0, 0 FROM tallyweir.batch"
    )
    outputs = [
        {"kind": "append", "table": "departures", "columns": None},
        {"kind": "append", "table": "large", "columns": None, "where": "seats > 300"},
    ]
    for version, where in enumerate(("seats > 300", "seats > 400"), start=1):
        outputs[1]["where"] = where
        connection.execute(
            "INSERT INTO tallyweir.pipeline_version (pipeline, version, definition, "
            "definition_hash, from_sequence, reason) SELECT pipeline, %s, jsonb_set("
            "definition, '{outputs}', %s), %s, %s, 'a test' FROM tallyweir.pipeline",
            (version, json.dumps(outputs), where, 0 if version == 1 else 3),
        )
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        "'{outputs}', %s)",
        (json.dumps(outputs),),
    )
    connection.commit()

    assert scenario.sequence == 3
    told = "\n".join(
        narrate(
            explain(connection, PIPELINE, "0-0", fake_fingerprint),
            lambda _payload: None,
        )
    )
    assert "was committed to departures in batch 1" in told
    assert "large has no row of the copy at orders[0] offset 0" in told
    assert "meet its condition: seats > 300." in told


def test_an_event_of_windows_only_is_told_by_its_batch_and_its_time(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Windows keep no IDs; the catalog does, by batch and by event time."""
    connection.execute("DELETE FROM departures")
    connection.execute(
        "UPDATE tallyweir.batch_output SET events = 3 WHERE kind = 'window'"
    )
    connection.commit()

    assert scenario.sequence == 3
    explanation = explain(connection, PIPELINE, "0-0", fake_fingerprint)
    told = "\n".join(narrate(explanation, lambda _payload: None))
    assert "Batch 1 added its events to the windows of departures_by_hour" in told
    assert "from 2026-03-01 01:00:00 UTC to 2026-03-01 02:00:00 UTC" in told
