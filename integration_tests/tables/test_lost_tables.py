"""A result table that is gone is not made again without a word."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    Row,
    append_table,
    execute,
    layout_of,
    query,
)
from integration_tests.harness.steered_pipeline import (
    START,
    WINDOW,
    broker_of,
    steered_layout,
)
from integration_tests.harness.steered_world import SteeredWorld
from integration_tests.ledger_scenario import LedgerScenario
from tallyweir.sinks.postgres import audit, steering
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import state_table
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.votes import OutputTally

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


@pytest.mark.parametrize("kind", ["append", "window"])
def test_a_table_beside_the_home_is_not_made_again_either(
    home_dsn: str, billing_dsn: str, kind: str
) -> None:
    """Markers in its own database count what it had, until the loss is accepted."""
    layout = _beside(kind)
    driver = PostgresDriver(
        dsn=home_dsn, layout=layout, databases={"billing": billing_dsn}
    )
    _publish_beside(driver, kind, 0)
    table = layout.outputs[0].table
    request = steering.ActRequest(pipeline="numbers", kind="accept-loss", reason="t")

    def accept() -> None:
        with connect(home_dsn, application_name="test") as home:
            lost = steering.accept_loss(home, request, table, driver.databases)
        assert (lost.is_there, lost.rows, lost.batches) == (False, 1, 1)

    with pytest.raises(ConfigurationError, match="NO_LOSS"):
        accept()
    execute(billing_dsn, f"DROP TABLE {table}")
    error = _refused(driver)
    assert "1 batches brought 1 rows" in error.saw
    assert f"accept-loss numbers {table}" in error.fix
    accept()
    _refuse_nothing(driver, kind, 1)
    # Rows of later batches are owed as ever.
    execute(billing_dsn, f"DROP TABLE {table}")
    assert "1 batches brought 1 rows" in _refused(driver).saw


def test_rows_of_another_table_of_the_branch_are_not_looked_for(
    home_dsn: str, billing_dsn: str
) -> None:
    """Those in the table count, since the last loss: what accept-loss gives up."""
    append, window = (_beside(kind).outputs[0] for kind in ("append", "window"))
    entries = [entry | {"databases": ["billing"]} for entry in _defined()["outputs"]]
    layout = _laid_out((append, window), *entries)

    def start() -> PostgresDriver:
        return PostgresDriver(
            dsn=home_dsn, layout=layout, databases={"billing": billing_dsn}
        )

    def publish(driver: PostgresDriver, *kinds: str) -> None:
        plan = driver.plan(1)
        rows: dict[str, list[Row]] = {
            "append": driver.positioned(plan, [("1", START)]),
            "window": [(START, START + WINDOW, "JFK", 1, 1)],
        }
        tables = {"append": append.staging_table, "window": window.staging_table}
        staged = {f"{tables[kind]}@billing.0": rows[kind] for kind in kinds}
        driver.publish(plan, driver.stage(plan, staged))

    driver = start()
    publish(driver, "window")
    execute(billing_dsn, "DROP TABLE numbers")
    driver = start()
    publish(driver, "append", "window")
    execute(billing_dsn, "DROP TABLE numbers")
    assert "1 batches brought 1 rows" in _refused(driver).saw
    request = steering.ActRequest(pipeline="numbers", kind="accept-loss", reason="t")
    with connect(home_dsn, application_name="test") as home:
        steering.accept_loss(home, request, "numbers", driver.databases)
    publish(start(), "window")
    execute(billing_dsn, "DROP TABLE numbers")
    start()


def _beside(kind: str) -> PipelineLayout:
    append, window = steered_layout(0).outputs
    output: Output
    if kind == "append":
        assert isinstance(append, AppendTable)
        output = replace(append, branches=("billing.0",))
    else:
        assert isinstance(window, WindowTable)
        output = replace(window, branches=("billing.0",))
    (entry,) = (one for one in _defined()["outputs"] if one["kind"] == kind)
    return _laid_out((output,), entry | {"databases": ["billing"]})


def _defined() -> dict[str, Any]:
    defined: dict[str, Any] = json.loads(steered_layout(0).definition)
    # Nobody files IDs here.
    return defined | {"deduplicate": None}


def _laid_out(outputs: Sequence[Output], *entries: Mapping[str, Any]) -> PipelineLayout:
    definition = json.dumps(_defined() | {"outputs": entries})
    return replace(layout_of(*outputs), definition=definition)


def _publish_beside(driver: PostgresDriver, kind: str, number: int) -> None:
    """Publish a batch of one event, each in the same window."""
    plan = driver.plan(1)
    rows: list[Row] = (
        driver.positioned(plan, [(str(number), START)])
        if kind == "append"
        else [(START, START + WINDOW, "JFK", 1, 1)]
    )
    (output,) = driver.layout.outputs
    staged = {f"{output.staging_table}@billing.0": rows}
    assert driver.publish(plan, driver.stage(plan, staged)) is PublishOutcome.COMMITTED


def _refuse_nothing(driver: PostgresDriver, kind: str, number: int) -> None:
    """Start again, publish, and let verify find nothing but what was given up."""
    again = PostgresDriver(
        dsn=driver.dsn, layout=driver.layout, databases=driver.databases
    )
    _publish_beside(again, kind, number)
    with connect(driver.dsn, application_name="test") as home:
        receipt = audit.verify(home, "numbers", driver.databases)
    assert not receipt.failed, receipt.failed


def test_an_accepted_loss_of_windows_lets_them_begin_again(
    home_dsn: str, tmp_path: Path
) -> None:
    """Open ones too: half of a sum would be no sum."""
    world = SteeredWorld(dsn=home_dsn, directory=tmp_path, log=[1, 2, 3, 4])
    world.first.work(0, [0] * 2)
    execute(home_dsn, "DROP TABLE public.by_window")
    request = steering.ActRequest(pipeline="numbers", kind="accept-loss", reason="t")
    world.act(lambda home: steering.accept_loss(home, request, "by_window"))
    world.first.claim(0)
    world.first.stage(0, [0] * 2)
    world.first.publish(0)
    assert query(home_dsn, "SELECT sum(events) FROM public.by_window") == [(2,)]
    with connect(home_dsn, application_name="test") as home:
        receipt = audit.verify(home, "numbers")
    world.close()
    assert not receipt.failed, receipt.failed


@pytest.mark.parametrize(
    ("statement", "saw"),
    [
        ("DROP TABLE public.by_window", "Table public.by_window does not exist"),
        ("DROP TABLE {state}", "the open windows of table public.by_window"),
    ],
)
def test_no_snapshot_is_taken_or_restored_with_half_of_the_windows(
    home_dsn: str, tmp_path: Path, statement: str, saw: str
) -> None:
    """Positions would go back without the state, and events count twice."""
    world = SteeredWorld(dsn=home_dsn, directory=tmp_path, log=[1, 2, 3, 4])
    world.first.claim(0)
    with connect(home_dsn, application_name="test") as home:
        steering.take_snapshot(home, "numbers", "before", reason="t")
    world.first.work(0, [0] * 2)
    world.close()
    (number,) = query(home_dsn, "SELECT pipeline_number FROM tallyweir.pipeline")[0]
    state = state_table(number, "by_window")
    with connect(home_dsn, application_name="test") as home:
        home.execute(sql.SQL(statement).format(state=state))
        home.commit()
        with pytest.raises(ConfigurationError, match=f"TABLE_LOST.*{saw}"):
            steering.take_snapshot(home, "numbers", "after", reason="t")
        with pytest.raises(ConfigurationError, match=f"TABLE_LOST.*{saw}"):
            steering.restore(
                home, "numbers", "before", broker_of(world.log), reason="t"
            )


def test_an_accepted_loss_of_a_functions_results_keeps_its_state(
    home_dsn: str,
) -> None:
    """The function goes on from it; its former results are not looked for."""
    layout = _laid_out(
        (
            KeyedTable(
                table="totals",
                staging_table="output_0",
                event_columns=(),
                key=(Column(name="label", postgres_type="text"),),
                columns=(Column(name="number", postgres_type="bigint"),),
            ),
        ),
        {"kind": "stateful", "table": "totals"},
    )
    request = steering.ActRequest(pipeline="numbers", kind="accept-loss", reason="t")
    for number in range(2):
        driver = PostgresDriver(dsn=home_dsn, layout=layout)
        plan = driver.plan(1)
        tally = driver.stage(plan, {"output_0_rows": [("a", number, 0)]})
        counted = {"totals": OutputTally(events=1, rows=1)}
        driver.publish(plan, replace(tally, outputs=counted))
        with connect(home_dsn, application_name="test") as home:
            receipt = audit.verify(home, "numbers")
            assert not receipt.failed, receipt.failed
            execute(home_dsn, "DROP TABLE public.totals")
            assert audit.verify(home, "numbers").failed
            lost = steering.accept_loss(home, request, "totals")
            assert (lost.rows, lost.batches) == (1, 1)


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
