"""A result table that is gone is not made again without a word."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from integration_tests.ledger_scenario import LedgerScenario
from sinks.postgres import audit, steering
from sinks.protocol.errors import ConfigurationError

_LAYOUT = layout_of(append_table("numbers", number="bigint"))


def _refused(driver: PostgresDriver) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        PostgresDriver(dsn=driver.dsn, layout=driver.layout, databases=driver.databases)
    assert "TABLE_LOST" == raised.value.code
    return raised.value


@pytest.mark.parametrize(
    ("statement", "saw"),
    [
        ("DROP TABLE numbers", "public.numbers does not exist"),
        ("ALTER TABLE numbers RENAME TO others", "public.numbers does not exist"),
        ("TRUNCATE numbers", "public.numbers is empty"),
    ],
)
def test_a_start_counts_what_is_gone_and_makes_nothing(
    home_dsn: str, statement: str, saw: str
) -> None:
    """By the ledger, and with the ways on."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append([(5,), (6,)])
    driver.append([(7,)])
    before = query(home_dsn, "SELECT to_regclass('public.numbers')::oid")
    execute(home_dsn, statement.replace("numbers", "public.numbers", 1))
    error = _refused(driver)
    assert saw in error.saw
    assert "2 batches brought 3 rows" in error.saw
    assert "verify numbers --replay" in error.fix
    assert "accept-loss numbers numbers" in error.fix
    after = query(home_dsn, "SELECT to_regclass('public.numbers')::oid")
    assert after == (before if "TRUNCATE" in statement else [(None,)])


def test_a_table_into_which_nothing_ever_came_is_made_again(home_dsn: str) -> None:
    """Nothing is missing of it."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    execute(home_dsn, "DROP TABLE public.numbers")
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)


def test_a_table_beside_the_home_is_not_made_again_either(
    home_dsn: str, billing_dsn: str
) -> None:
    """Markers in its own database count what it had."""
    output = replace(append_table("numbers", number="bigint"), branches=("billing.0",))
    driver = PostgresDriver(
        dsn=home_dsn, layout=layout_of(output), databases={"billing": billing_dsn}
    )
    plan = driver.plan(2)
    rows = {"output_0@billing.0": driver.positioned(plan, [(5,), (6,)])}
    driver.publish(plan, driver.stage(plan, rows))
    execute(billing_dsn, "DROP TABLE numbers")
    assert "1 batches brought 2 rows" in _refused(driver).saw


def _verify(scenario: LedgerScenario) -> audit.Receipt:
    return audit.verify(scenario.connection, "departures")


def test_an_accepted_loss_is_told_by_verify_with_its_reason(
    scenario: LedgerScenario, connection: psycopg.Connection[TupleRow]
) -> None:
    """And later rows are looked for as ever; without a loss none is accepted."""
    connection.execute("ALTER TABLE departures SET SCHEMA public")
    connection.execute("SET search_path = public")
    connection.commit()
    request = steering.ActRequest(
        pipeline="departures", kind="accept-loss", reason="dropped by mistake"
    )
    with pytest.raises(ConfigurationError, match="NO_LOSS"):
        steering.accept_loss(connection, request, "departures")
    connection.rollback()
    connection.execute("CREATE TABLE kept (LIKE departures INCLUDING ALL)")
    connection.execute("DROP TABLE departures")
    connection.commit()
    assert not _verify(scenario).is_verified
    lost = steering.accept_loss(
        connection, replace(request, dry_run=True), "public.departures"
    )
    assert not _verify(scenario).is_verified
    assert lost == steering.accept_loss(connection, request, "departures")
    connection.commit()
    receipt = _verify(scenario)
    assert receipt.is_verified
    (note,) = [one.note for one in receipt.checks if one.name == "append_outputs"]
    assert (
        f"{lost.rows} rows of departures through batch 3 were accepted as lost: "
        "dropped by mistake" == note
    )
    connection.execute("ALTER TABLE kept RENAME TO departures")
    connection.commit()
    scenario.publish({0: "CC", 3: ""})
    assert _verify(scenario).is_verified
    connection.execute("DELETE FROM departures")
    connection.commit()
    assert not _verify(scenario).is_verified
