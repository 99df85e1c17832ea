"""Versions of a pipeline: updates keep what windows count, and there is a way back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from integration_tests.harness.postgres_cluster import await_row
from integration_tests.harness.postgres_driver import (
    PIPELINE,
    SECOND_US,
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from integration_tests.harness.versioned_windows import (
    COUNTED,
    FIRST,
    ROWS,
    SECOND,
    SIZE_S,
    START,
    change,
    go_back,
    layout_in_force,
    publish,
    versioned_layout,
)
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import AggregateFunction
from tallyweir.sinks.postgres.outputs.window_columns import SessionWindows
from tallyweir.sinks.postgres.versions.version_claim import describe_layout
from tallyweir.sinks.postgres.versions.version_plan import PlanVerdict
from tallyweir.sinks.protocol.errors import ConfigurationError, FencedError

_SIZE = timedelta(seconds=SIZE_S)
_HIGHEST = "SELECT window_start, events, highest FROM by_origin ORDER BY 1"
_VERSIONS = (
    "SELECT version, from_sequence, rolls_back_to, reason "
    "FROM tallyweir.pipeline_version ORDER BY 1"
)


def _refused(dsn: str, layout: PipelineLayout) -> str:
    with pytest.raises(ConfigurationError) as raised:
        PostgresDriver(dsn=dsn, layout=layout)
    return raised.value.code


def test_an_added_aggregate_keeps_the_counts_of_open_windows(home_dsn: str) -> None:
    """It is NULL in windows that had begun, and known in those that begin after."""
    former = PostgresDriver(dsn=home_dsn, layout=FIRST)
    publish(former, 0, 3, [3])
    publish(former, 15, 2, [2])
    changed = change(home_dsn, SECOND)
    assert (2, 2) == (changed.version, changed.after_sequence)
    with pytest.raises(FencedError):
        publish(former, 0, 1, [1])
    driver = PostgresDriver(dsn=home_dsn, layout=SECOND)
    publish(driver, 5, 4, [70, 4])
    publish(driver, 25, 6, [80, 6])
    assert query(home_dsn, _HIGHEST) == [
        (START, 7, None),
        (START + _SIZE, 2, None),
        (START + 2 * _SIZE, 6, 80),
    ]


@pytest.mark.parametrize(
    "function",
    [
        AggregateFunction.MIN,
        AggregateFunction.SUM,
        AggregateFunction.AVG,
        AggregateFunction.FIRST,
        AggregateFunction.STDDEV,
    ],
)
def test_no_added_aggregate_tells_a_part_of_a_window(
    home_dsn: str, function: AggregateFunction
) -> None:
    """Whatever it merges by: part of a window would look like all of it."""
    publish(PostgresDriver(dsn=home_dsn, layout=FIRST), 0, 3, [3])
    layout = versioned_layout(("highest", function), COUNTED)
    change(home_dsn, layout)
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    known: dict[AggregateFunction, list[object]] = {
        AggregateFunction.MIN: [4],
        AggregateFunction.SUM: [8, 2],
        AggregateFunction.AVG: [8, 2],
        AggregateFunction.FIRST: [4, "0001"],
        AggregateFunction.STDDEV: [2, 4, 0],
    }
    partials = known[function]
    publish(driver, 5, 2, [*partials, 2])
    publish(driver, 15, 2, [*partials, 2])
    begun, fresh = query(home_dsn, _HIGHEST)
    assert (START, 5, None) == begun
    assert fresh[:2] == (START + _SIZE, 2)
    assert fresh[2] is not None


def test_a_session_that_swallows_one_that_had_begun_knows_no_more_than_it(
    home_dsn: str,
) -> None:
    """One that begins when the last of them ends has missed nothing."""
    windows = SessionWindows(gap_us=10 * SECOND_US)
    first = versioned_layout(COUNTED, windows=windows)
    second = versioned_layout(
        ("highest", AggregateFunction.MAX), COUNTED, windows=windows
    )
    publish(PostgresDriver(dsn=home_dsn, layout=first), 0, 3, [3])
    change(home_dsn, second)
    driver = PostgresDriver(dsn=home_dsn, layout=second)
    publish(driver, 10, 1, [9, 1])
    publish(driver, 100, 1, [9, 1])
    publish(driver, 5, 1, [9, 1])
    swallowed, apart = query(home_dsn, _HIGHEST)
    assert (START, 5, None) == swallowed
    assert (START + timedelta(seconds=100), 1, 9) == apart


def test_the_way_back_keeps_the_counts_too(home_dsn: str) -> None:
    """The former version comes as a new one; what it lacks is told no more."""
    publish(PostgresDriver(dsn=home_dsn, layout=FIRST), 0, 3, [3])
    change(home_dsn, SECOND)
    publish(PostgresDriver(dsn=home_dsn, layout=SECOND), 15, 4, [70, 4])
    changed = go_back(home_dsn, 1)
    assert (3, 2) == (changed.version, changed.after_sequence)
    assert _refused(home_dsn, SECOND) == "VERSION_SUPERSEDED"
    driver = PostgresDriver(dsn=home_dsn, layout=FIRST)
    publish(driver, 0, 1, [1])
    publish(driver, 15, 1, [1])
    assert [(START, 4, None), (START + _SIZE, 5, None)] == query(home_dsn, _HIGHEST)
    assert query(home_dsn, _VERSIONS) == [
        (1, 0, None, "the first start"),
        (2, 1, None, "a test"),
        (3, 2, 1, "a test of the way back"),
    ]


def test_a_driver_with_a_superseded_file_is_refused(home_dsn: str) -> None:
    """A supervisor would undo the update with it; nothing is fenced by that."""
    PostgresDriver(dsn=home_dsn, layout=FIRST)
    change(home_dsn, SECOND)
    driver = PostgresDriver(dsn=home_dsn, layout=SECOND)
    assert _refused(home_dsn, FIRST) == "VERSION_SUPERSEDED"
    publish(driver, 0, 1, [1, 1])
    # Nor after a change that nobody announced.
    third = versioned_layout(("highest", AggregateFunction.MAX), COUNTED, note="n > 1")
    PostgresDriver(dsn=home_dsn, layout=third)
    assert _refused(home_dsn, FIRST) == "VERSION_SUPERSEDED"
    PostgresDriver(dsn=home_dsn, layout=SECOND)


def test_a_driver_that_needs_no_migration_makes_the_next_version(
    home_dsn: str,
) -> None:
    """As it could be started with a changed file ever."""
    publish(PostgresDriver(dsn=home_dsn, layout=FIRST), 0, 3, [3])
    filtered = versioned_layout(COUNTED, note="n > 1")
    publish(PostgresDriver(dsn=home_dsn, layout=filtered), 0, 1, [1])
    PostgresDriver(dsn=home_dsn, layout=filtered)
    assert [(START, 4)] == query(home_dsn, ROWS)
    assert [
        (1, 0, None, "the first start"),
        (2, 1, None, "started with a changed file"),
    ] == query(home_dsn, _VERSIONS)


def test_a_driver_that_needs_a_migration_is_sent_to_update(home_dsn: str) -> None:
    """The driver at work is not fenced by that, and what cannot be says so."""
    driver = PostgresDriver(dsn=home_dsn, layout=FIRST)
    assert _refused(home_dsn, SECOND) == "UPDATE_NEEDED"
    other = versioned_layout(COUNTED, windows=SessionWindows(gap_us=SECOND_US))
    assert _refused(home_dsn, other) == "WINDOW_CHANGED"
    with pytest.raises(ConfigurationError, match="WINDOW_CHANGED"):
        change(home_dsn, other)
    publish(driver, 0, 3, [3])
    assert 1 == len(query(home_dsn, _VERSIONS))


def test_a_dry_run_does_all_of_it_and_takes_it_back(home_dsn: str) -> None:
    """It finds what the update would find, and nobody is fenced."""
    driver = PostgresDriver(dsn=home_dsn, layout=FIRST)
    publish(driver, 0, 3, [3])
    changed = change(home_dsn, SECOND, dry_run=True)
    assert 2 == changed.version
    publish(driver, 0, 1, [1])
    assert FIRST is layout_in_force(home_dsn)
    with psycopg.connect(home_dsn) as home:
        plan = steering.plan_update(home, PIPELINE, describe_layout(SECOND))
    assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    assert changed.plan.ddl == plan.ddl


def test_a_plan_takes_no_table_for_missing_that_it_may_not_read(home_dsn: str) -> None:
    """What the update would do to the table would be missing from the plan too."""
    PostgresDriver(dsn=home_dsn, layout=FIRST)
    granted = "GRANT SELECT ON ALL TABLES IN SCHEMA"
    roles = (
        "CREATE ROLE planner_of_less",
        "GRANT USAGE ON SCHEMA tallyweir, tallyweir_state TO planner_of_less",
        f"{granted} tallyweir, tallyweir_state TO planner_of_less",
    )
    execute(home_dsn, *roles)
    try:
        with psycopg.connect(home_dsn) as home:
            home.execute("SET ROLE planner_of_less")
            home.commit()
            with pytest.raises(ConfigurationError, match="POSTGRES_PERMISSION"):
                steering.plan_update(home, PIPELINE, describe_layout(SECOND))
        execute(home_dsn, f"{granted} public TO planner_of_less")
        with psycopg.connect(home_dsn) as home:
            home.execute("SET ROLE planner_of_less")
            home.commit()
            plan = steering.plan_update(home, PIPELINE, describe_layout(SECOND))
        assert PlanVerdict.NEEDS_MIGRATION is plan.verdict
    finally:
        execute(home_dsn, "DROP OWNED BY planner_of_less", "DROP ROLE planner_of_less")


#: For the number that the update has taken.
_CLAIM_WAITS = (
    "SELECT FROM pg_stat_activity WHERE wait_event = 'transactionid' "
    "AND query LIKE '%INSERT INTO tallyweir.epoch_claim%'"
)


def test_a_claim_beside_an_update_sees_it_or_comes_before_it(home_dsn: str) -> None:
    """The update has its number and is not committed when the driver wants one."""
    PostgresDriver(dsn=home_dsn, layout=FIRST)
    with ThreadPoolExecutor(2) as pool:
        with psycopg.connect(home_dsn) as publisher:
            publisher.execute("SELECT FROM tallyweir.pipeline FOR NO KEY UPDATE")
            updating = pool.submit(change, home_dsn, SECOND)
            await_row(home_dsn, _UPDATE_WAITS)
            refused = pool.submit(_refused, home_dsn, FIRST)
            await_row(home_dsn, _CLAIM_WAITS)
        assert 2 == updating.result(timeout=60).version
        assert "VERSION_SUPERSEDED" == refused.result(timeout=60)
    # It has spent no epoch: it would have fenced the new version's driver with it.
    assert [(2, True)] == query(
        home_dsn, "SELECT epoch, is_act FROM tallyweir.epoch_claim WHERE epoch > 1"
    )


#: For the publish at hand.
_UPDATE_WAITS = (
    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND query LIKE '%FOR NO KEY UPDATE%'"
)


def test_what_is_in_force_or_unknown_cannot_be_gone_to(home_dsn: str) -> None:
    """Nothing changes."""
    PostgresDriver(dsn=home_dsn, layout=FIRST)
    with pytest.raises(ConfigurationError, match="VERSION_IN_FORCE"):
        change(home_dsn, FIRST)
    with pytest.raises(ConfigurationError, match="VERSION_UNKNOWN"):
        go_back(home_dsn, 2)
    execute(home_dsn, "UPDATE tallyweir.pipeline_version SET layout = NULL")
    with pytest.raises(ConfigurationError, match="LAYOUT_UNKNOWN"):
        change(home_dsn, SECOND)
    # A driver tells it.
    PostgresDriver(dsn=home_dsn, layout=FIRST)
    change(home_dsn, SECOND)
    # One that died before its first claim has told nothing.
    execute(home_dsn, "DELETE FROM tallyweir.pipeline_version")
    with pytest.raises(ConfigurationError, match="LAYOUT_UNKNOWN"):
        change(home_dsn, FIRST)


def test_a_removed_output_leaves_its_rows_and_is_not_taken_up_again(
    home_dsn: str,
) -> None:
    """Its windows would begin again from nothing, over what they had counted."""
    publish(PostgresDriver(dsn=home_dsn, layout=FIRST), 0, 3, [3])
    empty = _without_outputs()
    change(home_dsn, empty)
    PostgresDriver(dsn=home_dsn, layout=empty)
    with pytest.raises(ConfigurationError, match="WINDOWS_LEFT_OPEN"):
        go_back(home_dsn, 1)
    assert [(START, 3)] == query(home_dsn, ROWS)
    execute(home_dsn, "DELETE FROM by_origin WHERE NOT final")
    go_back(home_dsn, 1)
    publish(PostgresDriver(dsn=home_dsn, layout=FIRST), 0, 1, [1])
    assert [(START, 1)] == query(home_dsn, ROWS)


def _without_outputs() -> PipelineLayout:
    definition = {**json.loads(FIRST.definition), "outputs": []}
    return replace(
        FIRST, outputs=(), definition=json.dumps(definition), definition_hash="none"
    )


def test_a_first_contract_that_was_wrong_is_mended_by_an_update(home_dsn: str) -> None:
    """All that was read died of it, so nothing is held against another one."""
    former = _appending("number", "bigint", writers=((1, "wrong.v1"),))
    wanted = _appending("number", "text", writers=((2, "right.v1"),))
    PostgresDriver(dsn=home_dsn, layout=former).append([(1,), (2,)])
    execute(
        home_dsn,
        "DELETE FROM numbers",
        "UPDATE tallyweir.batch_partition SET committed = 0, dead = read",
        "UPDATE tallyweir.batch_output SET events = 0, rows = 0",
    )
    assert "UPDATE_NEEDED" == _refused(home_dsn, wanted)
    changed = change(home_dsn, wanted)
    assert PlanVerdict.NEEDS_MIGRATION is changed.plan.verdict
    PostgresDriver(dsn=home_dsn, layout=wanted).append([("x",)])
    assert [("x",)] == query(home_dsn, "SELECT number FROM numbers")
    # From now on there are events that another contract would contradict.
    third = _appending("number", "text", writers=((3, "third.v1"),))
    assert "CONTRACT_CHANGED" == _refused(home_dsn, third)


def _appending(
    column: str, kind: str, *, writers: tuple[tuple[int, str], ...]
) -> PipelineLayout:
    layout = layout_of(append_table("numbers", **{column: kind}))
    definition = json.dumps(
        {
            "name": PIPELINE,
            "source": {
                "topic": "numbers",
                "schema": writers[0][1],
                "event_id": {"field": "id"},
                "event_time": "at",
            },
            "outputs": [{"table": "numbers", "kind": "append"}],
        }
    )
    return replace(
        layout, definition=definition, definition_hash=definition, writers=writers
    )
