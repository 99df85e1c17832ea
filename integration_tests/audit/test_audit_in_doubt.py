"""The audits while a branch is decided and not committed: what waits is told."""

from __future__ import annotations

from integration_tests.harness.postgres_driver import PIPELINE, execute, query
from integration_tests.harness.sharded_numbers import (
    Places,
    no_fingerprints,
    start_driver,
    stop,
)
from integration_tests.ledger_scenario import check_of, failed
from tallyweir.sinks.postgres.audit import (
    explain,
    narrate,
    narrate_unknown,
    read_status,
    verify,
)


def test_a_decided_branch_that_is_prepared_is_in_doubt_and_not_lost(
    places: Places,
) -> None:
    """Its rows are on the way; they count as soon as they are there."""
    places.kill_after_decision()

    receipt = verify(places.connection, PIPELINE, places.databases)
    assert failed(receipt) == {}
    assert check_of(receipt, "append_outputs").checked == 7
    assert "billing.0 of batch 3 for" in check_of(receipt, "branches").note

    stop(start_driver(places.home, places.billing))
    receipt = verify(places.connection, PIPELINE, places.databases)
    assert failed(receipt) == {}
    assert check_of(receipt, "append_outputs").checked == 9
    assert check_of(receipt, "branches").note == ""


def test_a_decided_branch_that_is_rolled_back_is_lost(places: Places) -> None:
    """Neither prepared nor marked: no one will ever commit its rows."""
    places.kill_after_decision()
    ((gid,),) = query(
        places.billing,
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()",
    )
    execute(places.billing, f"ROLLBACK PREPARED '{gid}'")

    receipt = verify(places.connection, PIPELINE, places.databases)

    assert failed(receipt) == {
        "branches": (
            (
                "billing.0 of batch 3 is decided, but neither prepared nor committed "
                "in billing"
            ),
        )
    }


def test_rows_of_a_branch_in_doubt_may_not_come_from_elsewhere(
    places: Places,
) -> None:
    """What is not committed yet may be missing, but nothing may stand in for it."""
    places.kill_after_decision()
    execute(places.billing, "INSERT INTO numbers VALUES (6, 'numbers', 0, 6)")

    receipt = verify(places.connection, PIPELINE, places.databases)

    assert failed(receipt) == {
        "branches": (
            "billing: the markers of batch 3 count 0 rows, its tables took 1",
        ),
        "row_values": (
            "numbers in billing: 1 rows of batch 3 were written again since",
        ),
    }


def test_an_event_of_a_decided_branch_says_that_it_waits(places: Places) -> None:
    """Its row is not there yet, and nothing is wrong."""
    places.kill_after_decision()
    found = explain(places.connection, PIPELINE, "6", no_fingerprints, places.databases)
    told = "\n".join(narrate_unknown(found, {}))
    assert (
        "Batch 3 is decided, not yet committed in billing (branch billing.0); the "
        "event may be among its rows."
    ) in told
    assert "the rows of numbers in billing" in told

    found = explain(places.connection, PIPELINE, "7", no_fingerprints, places.databases)
    told = "\n".join(narrate(found, lambda _payload: None))
    assert "the resolver will commit" in told


def test_status_shows_what_is_in_doubt_in_each_database(places: Places) -> None:
    """Readers of both databases may look as far as both have committed."""
    places.kill_after_decision()

    found = read_status(places.connection, PIPELINE, places.databases)

    assert (found.visible_through, found.last_sequence) == (2, 3)
    (billing,) = found.databases
    assert (billing.database, billing.in_doubt, billing.prepared) == ("billing", 1, 1)
    assert billing.oldest_in_doubt_s is not None
    assert billing.oldest_prepared_s is not None
    assert billing.oldest_prepared_s >= billing.oldest_in_doubt_s >= 0

    stop(start_driver(places.home, places.billing))
    found = read_status(places.connection, PIPELINE, places.databases)
    assert (found.visible_through, found.databases[0].in_doubt) == (3, 0)
    assert found.databases[0].oldest_prepared_s is None


def test_status_tells_what_the_home_knows_while_a_database_is_away(
    places: Places,
) -> None:
    """A server that is down is the reason why someone looks."""
    places.kill_after_decision()

    (billing,) = read_status(places.connection, PIPELINE).databases

    assert (billing.in_doubt, billing.prepared) == (1, None)
    assert billing.trouble.startswith("DATABASE_UNKNOWN")
