"""The audits of windows in other databases, and of branches of the home's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    PostgresDriver,
    counted_windows,
    execute,
    layout_of,
)
from integration_tests.harness.sharded_numbers import stop, with_definition
from integration_tests.ledger_scenario import check_of, failed
from tallyweir.sinks.postgres.audit import Verdict, WindowStatus, read_status, verify
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME

Connection = psycopg.Connection[TupleRow]

_MINUTE = timedelta(minutes=1)
_NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _numbers(*branches: str) -> AppendTable:
    return AppendTable(
        table="numbers",
        staging_table="output_0",
        event_columns=(Column(name="number", postgres_type="bigint"),),
        branches=branches,
    )


def _layout(*databases: str) -> PipelineLayout:
    """Numbers in billing, and windows in some databases."""
    branches = tuple(HOME if name == HOME else f"{name}.0" for name in databases)
    windows = replace(counted_windows("by_origin", "origin"), branches=branches)
    return with_definition(
        layout_of(_numbers("billing.0"), windows),
        [
            {"kind": "append", "table": "numbers", "databases": ["billing"]},
            {
                "kind": "window",
                "table": "by_origin",
                "by": ["origin"],
                "late": "drop",
                "databases": list(databases),
            },
        ],
    )


def _publish(driver: PostgresDriver, *staging: str) -> None:
    """Publish two numbers, and a group of a new minute by each staging table."""
    plan = driver.plan(2)
    minute = _NOON + timedelta(minutes=driver.batches)
    driver.publish(
        plan,
        driver.stage(
            plan,
            {
                "output_0@billing.0": driver.positioned(plan, [(1,), (2,)]),
                **{
                    table: [(minute, minute + _MINUTE, f"origin {n}", 1, 1)]
                    for n, table in enumerate(staging)
                },
            },
        ),
    )


@pytest.fixture
def sharded(home_dsn: str, billing_dsn: str) -> dict[str, str]:
    """Two batches with windows in the home and in billing."""
    driver = PostgresDriver(
        dsn=home_dsn,
        layout=_layout(HOME, "billing"),
        databases={"billing": billing_dsn},
    )
    for _ in range(2):
        _publish(driver, "output_1", "output_1@billing.0")
    stop(driver)
    return {"billing": billing_dsn}


def test_each_group_is_in_one_database(
    connection: Connection, sharded: dict[str, str]
) -> None:
    """Groups are told apart over all databases, and open ones are added up."""
    receipt = verify(connection, PIPELINE, sharded)
    assert failed(receipt) == {}
    groups = check_of(receipt, "window_groups")
    assert (groups.verdict, groups.checked) == (Verdict.OK, 4)
    assert read_status(connection, PIPELINE, sharded).windows == (
        WindowStatus(table="by_origin", open_groups=4, events=4),
    )
    assert read_status(connection, PIPELINE).windows == (
        WindowStatus(table="by_origin", open_groups=None, events=None),
    )


def test_a_group_in_two_databases_is_named(
    connection: Connection, sharded: dict[str, str], home_dsn: str
) -> None:
    """Each of the two would hold a part of the group's events."""
    execute(
        home_dsn,
        "INSERT INTO by_origin SELECT window_start, window_end, 'origin 1', 1, pane, "
        "final FROM by_origin LIMIT 1",
    )
    (violation,) = failed(verify(connection, PIPELINE, sharded))["window_groups"]
    assert violation.startswith("by_origin: the group (")
    assert violation.endswith("is in billing and in home")
    assert "origin 1" in violation


def test_a_group_may_have_several_rows_in_its_database(
    connection: Connection, sharded: dict[str, str], home_dsn: str
) -> None:
    """One for each pane, where panes discard."""
    execute(
        home_dsn,
        "ALTER TABLE by_origin DROP CONSTRAINT by_origin_window_start_origin_key; "
        "INSERT INTO by_origin TABLE by_origin",
    )
    receipt = verify(connection, PIPELINE, sharded)
    assert failed(receipt) == {}
    assert check_of(receipt, "window_groups").checked == 4


def test_a_window_table_that_is_gone_from_a_database_is_named(
    connection: Connection, sharded: dict[str, str]
) -> None:
    """Half of the groups are no sharded output."""
    execute(sharded["billing"], "DROP TABLE by_origin")
    found = failed(verify(connection, PIPELINE, sharded))
    assert found["window_groups"] == (
        "by_origin in billing: the table has no column window_start, origin",
    )
    (violation,) = found["row_values"]
    assert violation.startswith("by_origin in billing: the table has no column window")


def test_a_marker_counts_rows_and_windows_together(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """A branch that moves both kinds of output says how many rows it moved in all."""
    databases = {"billing": billing_dsn}
    driver = PostgresDriver(
        dsn=home_dsn, layout=_layout("billing"), databases=databases
    )
    _publish(driver, "output_1@billing.0")
    stop(driver)
    assert failed(verify(connection, PIPELINE, databases)) == {}
    execute(billing_dsn, "UPDATE tallyweir_participant.marker SET rows = rows + 1")
    assert failed(verify(connection, PIPELINE, databases))["branches"] == (
        "billing: the markers of batch 1 count 4 rows, its tables took 3",
    )


def test_an_output_that_is_no_more_leaves_its_rows_uncounted(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """A marker counts rows of tables that the pipeline does not know any more."""
    databases = {"billing": billing_dsn}
    driver = PostgresDriver(
        dsn=home_dsn, layout=_layout("billing"), databases=databases
    )
    _publish(driver, "output_1@billing.0")
    stop(driver)
    execute(
        home_dsn,
        "UPDATE tallyweir.pipeline SET definition = definition #- '{outputs,1}'",
    )
    assert failed(verify(connection, PIPELINE, databases)) == {}


def test_branches_of_the_home_itself_are_held_against_their_decisions(
    connection: Connection, home_dsn: str
) -> None:
    """Parallel transactions leave markers in the home, without any other database."""
    layout = with_definition(
        layout_of(_numbers("home.0", "home.1")),
        [{"kind": "append", "table": "numbers", "branches": 2}],
    )
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(1,), (2,)])
    staged = {"output_0@home.0": rows[:1], "output_0@home.1": rows[1:]}
    driver.publish(plan, driver.stage(plan, staged))
    stop(driver)

    receipt = verify(connection, PIPELINE)
    assert failed(receipt) == {}
    assert receipt.databases == ("home",)
    assert check_of(receipt, "branches").checked == 2
    (home,) = read_status(connection, PIPELINE).databases
    assert (home.database, home.in_doubt, home.prepared) == ("home", 0, 0)

    execute(
        home_dsn, "DELETE FROM tallyweir_participant.marker WHERE branch = 'home.1'"
    )
    assert failed(verify(connection, PIPELINE))["branches"] == (
        "home.1 of batch 1 is noted as committed, but home has no marker of it",
    )
