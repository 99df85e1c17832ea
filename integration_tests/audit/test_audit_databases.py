"""The audits over two databases: what disagrees is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import PIPELINE, execute, query
from integration_tests.harness.sharded_numbers import (
    Places,
    no_fingerprints,
    publish_three,
    start_driver,
    stop,
)
from integration_tests.ledger_scenario import LedgerScenario, check_of, failed
from tallyweir.sinks.postgres.audit import Verdict, explain, narrate, verify
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError


def test_rows_in_several_databases_are_counted_together(places: Places) -> None:
    """Every check that applies holds, and the receipt says where it looked."""
    receipt = verify(places.connection, PIPELINE, places.databases)

    assert failed(receipt) == {}
    assert receipt.databases == ("home", "billing")
    assert receipt.as_json()["databases"] == ["home", "billing"]
    assert check_of(receipt, "append_outputs").checked == 6
    branches = check_of(receipt, "branches")
    assert (branches.verdict, branches.checked) == (Verdict.OK, 2)
    assert branches.note == ""


# Each forgery: statements in the home, statements in billing, the check that must
# name it, and what it must say.
_FORGERIES: dict[str, tuple[list[str], list[str], str, str]] = {
    "row removed": (
        [],
        ["DELETE FROM numbers WHERE number = 0"],
        "append_outputs",
        "numbers: 2 rows of batch 1 on numbers[0], the ledger counts 3",
    ),
    "row doubled": (
        [],
        ["INSERT INTO numbers SELECT * FROM numbers WHERE number = 0"],
        "append_outputs",
        "numbers: numbers[0] offset 0 is there 2 times",
    ),
    "row doubled into the other database": (
        ["INSERT INTO numbers VALUES (0, 'numbers', 0, 0)"],
        [],
        "append_outputs",
        "numbers: numbers[0] offset 0 is in billing, and is in home as well",
    ),
    "row doubled into the other database, in place of its neighbours": (
        ["UPDATE numbers SET kafka_offset = 0 WHERE number = 1"],
        [],
        "append_outputs",
        "numbers: numbers[0] offset 0 is in billing, and is in home as well",
    ),
    "row moved to the home": (
        ["INSERT INTO numbers VALUES (0, 'numbers', 0, 0)"],
        ["DELETE FROM numbers WHERE number = 0"],
        "branches",
        "billing: the markers of batch 1 count 2 rows, its tables took 1",
    ),
    "row moved from the home": (
        ["DELETE FROM numbers WHERE number = 1"],
        ["INSERT INTO numbers VALUES (1, 'numbers', 0, 1)"],
        "branches",
        "billing: the markers of batch 1 count 2 rows, its tables took 3",
    ),
    "row moved to another batch": (
        [],
        ["UPDATE numbers SET kafka_offset = 4 WHERE number = 2"],
        "append_outputs",
        "numbers: 4 rows of batch 2 on numbers[0], the ledger counts 3",
    ),
    "row at the next offset": (
        [],
        ["INSERT INTO numbers VALUES (9, 'numbers', 0, 6)"],
        "append_outputs",
        (
            "numbers in billing: 1 rows of numbers[0] lie in no batch, offsets 6 to 6, "
            "though the next offset to read is 6"
        ),
    ),
    "duplicate that is a result elsewhere": (
        [
            (
                "INSERT INTO tallyweir.duplicate_event (pipeline, kafka_topic, "
                "kafka_partition, kafka_offset, sequence, event_id) "
                "VALUES ('numbers', 'numbers', 0, 5, 2, '5')"
            )
        ],
        [],
        "append_outputs",
        "numbers: numbers[0] offset 5 is there, and is a duplicate as well",
    ),
    "table dropped": (
        [],
        ["DROP TABLE numbers"],
        "append_outputs",
        "numbers in billing: the table has no column kafka_topic",
    ),
    "marker deleted": (
        [],
        ["DELETE FROM tallyweir_participant.marker WHERE sequence = 1"],
        "branches",
        "billing.0 of batch 1 is noted as committed, but billing has no marker of it",
    ),
    "all markers deleted": (
        [],
        ["DROP SCHEMA tallyweir_participant CASCADE"],
        "branches",
        "billing.0 of batch 2 is noted as committed, but billing has no marker of it",
    ),
    "marker forged": (
        [],
        [
            (
                "INSERT INTO tallyweir_participant.marker (installation, "
                "pipeline_number, branch, sequence, gid, pipeline, rows) "
                "SELECT installation, pipeline_number, branch, 3, "
                "replace(gid, ':2:billing', ':3:billing'), pipeline, 0 "
                "FROM tallyweir_participant.marker WHERE sequence = 2"
            )
        ],
        "branches",
        "billing has a marker of billing.0 of batch 3",
    ),
    "marker of another try": (
        [],
        [
            (
                "UPDATE tallyweir_participant.marker SET gid = gid || '7' "
                "WHERE sequence = 2"
            )
        ],
        "branches",
        "7, that home never decided",
    ),
    "marker moved to another batch": (
        [],
        ["UPDATE tallyweir_participant.marker SET sequence = 7 WHERE sequence = 2"],
        "branches",
        "billing has a marker of billing.0 of batch 7",
    ),
    "marker's count forged": (
        [],
        ["UPDATE tallyweir_participant.marker SET rows = 3 WHERE sequence = 2"],
        "branches",
        "billing: the markers of batch 2 count 3 rows, its tables took 2",
    ),
    "decision deleted": (
        ["DELETE FROM tallyweir.batch_branch WHERE sequence = 2"],
        [],
        "branches",
        "billing has a marker of billing.0 of batch 2",
    ),
}


@pytest.mark.parametrize("forgery", _FORGERIES)
def test_a_forgery_in_either_database_is_named(places: Places, forgery: str) -> None:
    """No row, marker or decision can be changed without another that contradicts it."""
    at_home, in_billing, check, said = _FORGERIES[forgery]
    execute(places.home, *at_home)
    execute(places.billing, *in_billing)

    receipt = verify(places.connection, PIPELINE, places.databases)

    assert not receipt.is_verified
    violations = failed(receipt).get(check, ())
    assert any(said in violation for violation in violations), failed(receipt)


def test_remembered_ids_are_held_against_the_rows_of_all_databases(
    connection: psycopg.Connection[TupleRow],
    scenario: LedgerScenario,
    billing_dsn: str,
) -> None:
    """The home remembers the IDs of events whose rows are elsewhere."""
    assert scenario.sequence == 3
    moved = connection.execute(
        "DELETE FROM departures WHERE kafka_offset % 2 = 0 RETURNING *"
    ).fetchall()
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        """'{outputs,0,databases}', '["home", "billing"]')"""
    )
    connection.commit()
    with psycopg.connect(billing_dsn) as billing:
        billing.execute(
            "CREATE TABLE departures (event_id text, scheduled_at timestamptz, "
            "kafka_topic text, kafka_partition integer, kafka_offset bigint)"
        )
        for row in moved:
            billing.execute("INSERT INTO departures VALUES (%s, %s, %s, %s, %s)", row)
    databases = {"billing": billing_dsn}

    # No branch brought these rows to billing, which is all that is wrong.
    assert set(failed(verify(connection, "departures", databases))) == {"branches"}

    execute(billing_dsn, "DELETE FROM departures WHERE event_id = '0-10'")
    found = failed(verify(connection, "departures", databases))
    assert set(found) == {"append_outputs", "branches", "seen_ids"}
    assert "of batch 3, departures has 1 of its events" in found["seen_ids"][0]


class _PublishesWhenAsked(Mapping[str, str]):
    """Connection strings, which are asked for when the home's snapshot is there."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def __iter__(self) -> Iterator[str]:
        """Let a whole batch be published between the two snapshots."""
        driver = start_driver(self._places.home, self._places.billing)
        publish_three(driver, 6)
        stop(driver)
        return iter(self._places.databases)

    def __getitem__(self, name: str) -> str:
        return self._places.databases[name]

    def __len__(self) -> int:
        return len(self._places.databases)


def test_a_batch_that_comes_between_two_snapshots_is_no_violation(
    places: Places,
) -> None:
    """Rows and markers that the home's snapshot cannot know are looked up again."""
    receipt = verify(places.connection, PIPELINE, _PublishesWhenAsked(places))

    assert failed(receipt) == {}
    assert receipt.totals.batches == 2
    assert len(query(places.billing, "SELECT FROM numbers")) == 6


def test_a_database_that_is_not_known_is_an_error(places: Places) -> None:
    """What cannot be looked at is never taken for right."""
    with pytest.raises(ConfigurationError, match=r"DATABASE_UNKNOWN.*'billing'"):
        verify(places.connection, PIPELINE)
    with pytest.raises(ConfigurationError, match=r"DATABASE_UNKNOWN.*'billing'"):
        explain(places.connection, PIPELINE, "0", no_fingerprints)


def test_a_database_that_does_not_answer_is_an_error(places: Places) -> None:
    """The error names the database, and where it is looked for."""
    nowhere = {"billing": "host=127.0.0.1 port=1 password=secret"}
    with pytest.raises(RetryableError, match="Database billing") as raised:
        verify(places.connection, PIPELINE, nowhere)
    assert "TALLYWEIR_DATABASES" in raised.value.fix
    assert "secret" not in str(raised.value)


def test_an_event_is_found_in_whichever_database_it_is(places: Places) -> None:
    """The branch is told that brought it there; the home needs none."""

    def told(event_id: str) -> str:
        found = explain(
            places.connection, PIPELINE, event_id, no_fingerprints, places.databases
        )
        return "\n".join(narrate(found, lambda _payload: None))

    assert (
        "A copy at numbers[0] offset 5 was committed to numbers in billing "
        "(branch billing.0 committed), in batch 2, published at"
    ) in told("5")
    assert "offset 4 was committed to numbers in batch 2" in told("4")
