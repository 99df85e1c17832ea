"""``verify`` finds a row of any kind of output that was changed by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.fresh_databases import fresh_database
from integration_tests.harness.postgres_driver import (
    PIPELINE,
    SECOND_US,
    PostgresDriver,
    Row,
    append_table,
    execute,
    layout_of,
)
from integration_tests.harness.sharded_numbers import stop, with_definition
from integration_tests.ledger_scenario import check_of, failed
from tallyweir.services.local.embedded.postgres import server_binary
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import Receipt, verify
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.outbox_table import OutboxTable
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import (
    LatePolicy,
    SessionWindows,
    fixed_windows,
)
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.errors import ConfigurationError

Connection = psycopg.Connection[TupleRow]

_NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
_SIZE = timedelta(seconds=10)


def _aggregate(number: int, name: str, function: AggregateFunction) -> WindowAggregate:
    return WindowAggregate(
        column=Column(name=name, postgres_type="bigint"),
        function=function,
        number=number,
        partial_type="bigint",
    )


_WINDOWS = WindowTable(
    table="totals",
    staging_table="output_1",
    windows=fixed_windows(10 * SECOND_US),
    by=(Column(name="meter", postgres_type="text"),),
    aggregates=(
        _aggregate(0, "events", AggregateFunction.COUNT),
        _aggregate(1, "total", AggregateFunction.SUM),
        _aggregate(2, "highest", AggregateFunction.MAX),
    ),
    allowed_lateness_us=10 * SECOND_US,
    late=LatePolicy.REVISE,
)
_KEYED = KeyedTable(
    table="totals",
    staging_table="output_1",
    event_columns=(),
    key=(Column(name="meter", postgres_type="text"),),
    columns=(Column(name="total", postgres_type="bigint"),),
)
_MESSAGES = OutboxTable(
    table="outbox:alarms",
    staging_table="output_1",
    topic="alarms",
    fields=(Column(name="number", postgres_type="bigint"),),
    key=Column(name="meter", postgres_type="text"),
)
_OUTPUTS: Mapping[str, WindowTable] = {
    "fixed": _WINDOWS,
    "session": replace(_WINDOWS, windows=SessionWindows(gap_us=5 * SECOND_US)),
    "panes": replace(_WINDOWS, discards=True),
    "elsewhere": replace(_WINDOWS, branches=("billing.0",)),
    "in two": replace(_WINDOWS, branches=(HOME, "billing.0")),
}
#: Statements that change what a reader sees; what a row holds is found by its meter.
_FORGERIES = {
    "value": "UPDATE totals SET total = total + 1000 WHERE meter = '{meter}'",
    "null": "UPDATE totals SET highest = NULL WHERE meter = '{meter}'",
    "end": "UPDATE totals SET window_end = window_end + '1 s' WHERE meter = '{meter}'",
    "removed": "DELETE FROM totals WHERE meter = '{meter}'",
    "added": (
        "INSERT INTO totals SELECT (jsonb_populate_record(one, "
        "'{{\"meter\": \"nobody''s\"}}')).* FROM totals AS one WHERE meter = '{meter}'"
    ),
    "column dropped and added again": (
        "ALTER TABLE totals DROP COLUMN total; ALTER TABLE totals ADD total bigint"
    ),
}


def _layout(output: Output, kind: str) -> PipelineLayout:
    databases = sorted({b.partition(".")[0] for b in output.branches})
    return with_definition(
        layout_of(append_table("readings", number="bigint"), output),
        [
            {"kind": "append", "table": "readings"},
            {
                "kind": kind,
                "table": output.table,
                "by": ["meter"],
                "databases": databases,
            },
        ],
    )


def _staged(output: WindowTable, second: int, meter: str, value: int) -> Row:
    """Return what a task stages of one event."""
    start = _NOON + timedelta(seconds=second - second % 10)
    waiting = (None,) if output.waits else ()
    return (start, start + _SIZE, meter, 1, 1, value, 1, value, *waiting)


def _publish(
    driver: PostgresDriver,
    at: int,
    *events: tuple[int, str, int],
    revised: int = 0,
) -> None:
    """Publish a batch of events as (second, meter, value), and events of second ``at``.

    The events of each meter go to the branch that is theirs, if there are several.
    """
    (_, output) = driver.layout.outputs
    assert isinstance(output, WindowTable)
    plan = driver.plan(len(events))
    staged: dict[str, list[Row]] = {
        "output_0": driver.positioned(plan, [(value,) for _, _, value in events])
    }
    for second, meter, value in events:
        branch = output.branches[ord(meter[0]) % len(output.branches)]
        table = "output_1" if branch == HOME else f"output_1@{branch}"
        staged.setdefault(table, []).append(_staged(output, second, meter, value))
    at_us = int((_NOON + timedelta(seconds=at)).timestamp()) * SECOND_US
    tally = driver.stage(plan, staged, event_time_max_us=at_us, revised=revised)
    driver.publish(plan, tally)


def _run(
    home_dsn: str, billing_dsn: str, output: WindowTable, *, later: int = 0
) -> None:
    """Leave a window that is final, one that was revised, and one that is open.

    All of it may be so many seconds later, after another such run.
    """

    def publish(at: int, *events: tuple[int, str, int], revised: int = 0) -> None:
        moved = [(second + later, meter, value) for second, meter, value in events]
        _publish(driver, at + later, *moved, revised=revised)

    driver = PostgresDriver(
        dsn=home_dsn,
        layout=_layout(output, "window"),
        databases={"billing": billing_dsn},
    )
    publish(3, (1, "final", 5), (2, "final", 7), (3, "also", 1))
    publish(12, (12, "revised", 3), (11, "boring", 4))
    publish(25, (24, "open", 8), (25, "open", 9))
    publish(26, (13, "revised", 30), (26, "open", 1), revised=1)
    stop(driver)


def _verify(connection: Connection, billing_dsn: str) -> Receipt:
    return verify(connection, PIPELINE, {"billing": billing_dsn})


@pytest.mark.parametrize("kind", _OUTPUTS)
def test_a_window_that_somebody_has_changed_is_found(
    connection: Connection, home_dsn: str, billing_dsn: str, kind: str
) -> None:
    """Whether it is final, settled or open, and in whichever database."""
    output = _OUTPUTS[kind]
    _run(home_dsn, billing_dsn, output)
    receipt = _verify(connection, billing_dsn)
    assert failed(receipt) == {}
    compared = [coverage.rows_compared for coverage in receipt.outputs]
    assert sum(compared) == check_of(receipt, "row_values").checked
    assert min(compared) >= 4
    for meter in ("final", "revised", "open"):
        branch = output.branches[ord(meter[0]) % len(output.branches)]
        dsn = billing_dsn if branch.startswith("billing") else home_dsn
        for name, forgery in _FORGERIES.items():
            with _forged(dsn, forgery.format(meter=meter)):
                found = failed(_verify(connection, billing_dsn))
            assert list(found) == ["row_values"], (meter, name)
    assert failed(_verify(connection, billing_dsn)) == {}


@pytest.mark.parametrize("kind", ["elsewhere", "panes"])
def test_windows_of_an_accepted_loss_are_not_looked_for_beside_the_home(
    connection: Connection, home_dsn: str, billing_dsn: str, kind: str
) -> None:
    """Settled ones, panes and revisions neither; a change of a later one is found."""
    output = replace(_OUTPUTS[kind], branches=("billing.0",))
    _run(home_dsn, billing_dsn, output)
    execute(billing_dsn, "DROP TABLE totals", "DROP TABLE IF EXISTS totals_revisions")
    request = steering.ActRequest(pipeline=PIPELINE, kind="accept-loss", reason="t")
    with psycopg.connect(home_dsn) as home:
        steering.accept_loss(home, request, "totals", {"billing": billing_dsn})
    _run(home_dsn, billing_dsn, output, later=100)
    assert failed(_verify(connection, billing_dsn)) == {}
    with _forged(billing_dsn, "UPDATE totals SET total = 1 WHERE meter = 'final'"):
        assert list(failed(_verify(connection, billing_dsn))) == ["row_values"]


def test_a_former_row_that_somebody_has_changed_is_found(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """Revisions are the story of what readers were shown."""
    _run(home_dsn, billing_dsn, _WINDOWS)
    forgery = "UPDATE totals_revisions SET total = 0"
    with _forged(home_dsn, forgery, "totals_revisions"):
        (violation,) = failed(_verify(connection, billing_dsn))["row_values"]
    assert violation == (
        "totals_revisions: of batch 4, the 1 rows are not what was written: a value "
        "was changed since"
    )


def test_an_open_window_tells_what_it_should_show(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """Both values are named; the next batch of the window puts it right."""
    _run(home_dsn, billing_dsn, _WINDOWS)
    execute(home_dsn, "UPDATE totals SET total = 1018 WHERE meter = 'open'")
    (violation,) = failed(_verify(connection, billing_dsn))["row_values"]
    assert violation == (
        "totals: the row of meter=open, window_start=2026-03-01 12:00:20+00 shows "
        "total=1018, its state says total=18"
    )
    execute(home_dsn, "UPDATE totals SET pane = 'late' WHERE meter = 'open'")
    (violation,) = failed(_verify(connection, billing_dsn))["row_values"]
    assert "shows early=false, total=1018, its state says early=true" in violation
    driver = PostgresDriver(dsn=home_dsn, layout=_layout(_WINDOWS, "window"))
    _publish(driver, 27, (27, "open", 2))
    stop(driver)
    assert failed(_verify(connection, billing_dsn)) == {}


def test_a_window_that_a_trigger_skips_stops_the_pipeline(home_dsn: str) -> None:
    """Its row would be missing, and no event stands for it."""
    driver = PostgresDriver(dsn=home_dsn, layout=_layout(_WINDOWS, "window"))
    execute(
        home_dsn,
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN NULL; END $$",
        "CREATE TRIGGER skip BEFORE INSERT ON public.totals "
        "FOR EACH ROW EXECUTE FUNCTION skip()",
    )
    with pytest.raises(ConfigurationError, match="TABLE_SKIPS_ROWS"):
        _publish(driver, 3, (1, "final", 5))


def test_rows_from_before_digests_are_counted_and_told(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """An update of the product calls no window wrong that was settled before it."""
    driver = PostgresDriver(dsn=home_dsn, layout=_layout(_WINDOWS, "window"))
    _publish(driver, 3, (1, "final", 5))
    _publish(driver, 35, (35, "open", 3))
    stop(driver)
    execute(home_dsn, "UPDATE tallyweir.batch_output SET digests = NULL")
    receipt = _verify(connection, billing_dsn)
    assert failed(receipt) == {}
    driver = PostgresDriver(dsn=home_dsn, layout=_layout(_WINDOWS, "window"))
    _publish(driver, 60, (60, "later", 3))
    stop(driver)
    receipt = _verify(connection, billing_dsn)
    assert failed(receipt) == {}
    assert "1 rows from before digests were kept" in receipt.outputs[1].not_looked_at
    with _forged(home_dsn, "UPDATE totals SET total = 4 WHERE meter = 'open'"):
        assert list(failed(_verify(connection, billing_dsn))) == ["row_values"]


def test_a_result_of_a_function_that_somebody_has_changed_is_found(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """Its rows come of state, so nothing but their digest tells."""
    driver = PostgresDriver(dsn=home_dsn, layout=_layout(_KEYED, "stateful"))
    for number in range(2):
        plan = driver.plan(2)
        staged = {
            "output_0": driver.positioned(plan, [(1,), (2,)]),
            "output_1_rows": [("final", 5, 0), (f"m{number}", 7, 1)],
        }
        tally = driver.stage(plan, staged)
        outputs = dict(tally.outputs)
        outputs["totals"] = replace(outputs["totals"], rows=2)
        driver.publish(plan, replace(tally, outputs=outputs))
    stop(driver)
    receipt = _verify(connection, billing_dsn)
    assert failed(receipt) == {}
    assert [4, 4] == [coverage.rows_compared for coverage in receipt.outputs]
    for forgery in (
        "UPDATE totals SET total = total + 1 WHERE meter = 'm1'",
        "UPDATE totals SET meter = 'm1' WHERE meter = 'm0'",
        (
            "UPDATE totals SET tallyweir_sequence = 3 - tallyweir_sequence "
            "WHERE meter LIKE 'm%'"
        ),
        "ALTER TABLE totals DROP COLUMN total; ALTER TABLE totals ADD total bigint",
    ):
        with _forged(home_dsn, forgery):
            assert list(failed(_verify(connection, billing_dsn))) == ["row_values"]


def test_a_message_that_somebody_has_changed_while_it_waits_is_found(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """Its topic would get what no event has said."""
    driver = PostgresDriver(dsn=home_dsn, layout=_layout(_MESSAGES, "outbox"))
    plan = driver.plan(2)
    staged = {
        "output_0": driver.positioned(plan, [(1,), (2,)]),
        "output_1": [
            (number, f"m{number}", f"id{number}", *position)
            for number, *position in driver.positioned(plan, [(1,), (2,)])
        ],
    }
    driver.publish(plan, driver.stage(plan, staged))
    stop(driver)
    receipt = _verify(connection, billing_dsn)
    assert failed(receipt) == {}
    assert receipt.outputs[1].rows_compared == 2
    for forgery in (
        "UPDATE tallyweir.outbox SET value = '{}' WHERE event_id = 'id1'",
        "UPDATE tallyweir.outbox SET key = NULL WHERE event_id = 'id1'",
    ):
        with _forged(home_dsn, forgery, "tallyweir.outbox"):
            assert list(failed(_verify(connection, billing_dsn))) == ["row_values"]
    assert failed(_verify(connection, billing_dsn)) == {}


@contextmanager
def _forged(dsn: str, statements: str, table: str = "totals") -> Iterator[None]:
    """Change a table for the length of a block; then it is as it was."""
    execute(
        dsn,
        f"CREATE TABLE kept (LIKE {table} INCLUDING ALL)",
        f"INSERT INTO kept TABLE {table}",
        *statements.split("; "),
    )
    try:
        yield
    finally:
        if table == "tallyweir.outbox":
            execute(dsn, f"DELETE FROM {table}", f"INSERT INTO {table} TABLE kept")
            execute(dsn, "DROP TABLE kept")
        else:
            execute(dsn, f"DROP TABLE {table}", f"ALTER TABLE kept RENAME TO {table}")


def _append(dsn: str, billing_dsn: str, branches: tuple[str, ...]) -> None:
    table = replace(
        append_table("readings", number="bigint", meter="text"), branches=branches
    )
    driver = PostgresDriver(
        dsn=dsn,
        layout=with_definition(
            layout_of(table),
            [
                {
                    "kind": "append",
                    "table": "readings",
                    "databases": sorted({b.partition(".")[0] for b in branches}),
                }
            ],
        ),
        databases={"billing": billing_dsn},
    )
    for batch in range(3):
        plan = driver.plan(4)
        rows = driver.positioned(plan, [(batch * 4 + n, f"m{n}") for n in range(4)])
        staged: dict[str, list[Row]] = {}
        for number, row in enumerate(rows):
            branch = branches[number % len(branches)]
            name = "output_0" if branch == HOME else f"output_0@{branch}"
            staged.setdefault(name, []).append(row)
        driver.publish(plan, driver.stage(plan, staged))
    stop(driver)


@pytest.mark.parametrize("branches", [(HOME,), ("billing.0",), (HOME, "billing.0")])
def test_an_appended_row_that_somebody_has_changed_is_found(
    connection: Connection, home_dsn: str, billing_dsn: str, branches: tuple[str, ...]
) -> None:
    """Its transaction is not that of its batch; maintenance changes none."""
    _append(home_dsn, billing_dsn, branches)
    dsn = home_dsn if HOME in branches else billing_dsn
    for statement in ("VACUUM (FREEZE) readings", "VACUUM FULL readings", "ANALYZE"):
        execute(dsn, statement)
    receipt = _verify(connection, billing_dsn)
    assert failed(receipt) == {}
    assert check_of(receipt, "row_values").checked == 12
    assert "written again" in receipt.outputs[0].looked_at

    execute(dsn, "UPDATE readings SET number = -1 WHERE number IN (0, 4)")
    place = "readings" if HOME in branches else "readings in billing"
    assert failed(_verify(connection, billing_dsn)) == {
        "row_values": (
            f"{place}: 1 rows of batch 1 were written again since",
            f"{place}: 1 rows of batch 2 were written again since",
        )
    }


def test_a_column_of_the_owners_may_be_updated_and_is_told(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """Which column an update has changed, nothing says."""
    _append(home_dsn, billing_dsn, (HOME,))
    execute(
        home_dsn,
        "ALTER TABLE readings ADD COLUMN seen_at timestamptz",
        "UPDATE readings SET seen_at = now() WHERE number < 2",
    )
    receipt = _verify(connection, billing_dsn)
    assert failed(receipt) == {}
    assert "2 rows that were written again" in receipt.outputs[0].not_looked_at


def test_rows_that_a_change_of_the_table_wrote_again_are_told(
    connection: Connection, home_dsn: str, billing_dsn: str
) -> None:
    """So are those of a dump that was loaded; a later update is found all the same."""
    _append(home_dsn, billing_dsn, (HOME,))
    execute(home_dsn, "ALTER TABLE readings ALTER COLUMN meter TYPE varchar(90)")
    execute(home_dsn, "ALTER TABLE readings ALTER COLUMN number TYPE numeric")
    receipt = _verify(connection, billing_dsn)
    assert failed(receipt) == {}
    assert "12 rows that a change" in receipt.outputs[0].not_looked_at
    execute(home_dsn, "UPDATE readings SET number = -1 WHERE number = 0")
    assert list(failed(_verify(connection, billing_dsn))) == ["row_values"]


def test_rows_that_were_loaded_from_a_dump_are_told(
    home_dsn: str, billing_dsn: str, server_dsn: str
) -> None:
    """Their transactions are those of the load, and so are the ledger's."""
    _append(home_dsn, billing_dsn, (HOME,))
    with fresh_database(server_dsn, "loaded") as loaded:
        dump = subprocess.run(
            [server_binary("pg_dump"), home_dsn], check=True, capture_output=True
        )
        subprocess.run(
            [server_binary("psql"), "-q", "-v", "ON_ERROR_STOP=1", loaded],
            input=dump.stdout,
            check=True,
            capture_output=True,
        )
        with psycopg.connect(loaded) as there:
            receipt = _verify(there, billing_dsn)
            assert failed(receipt) == {}
            assert "12 rows loaded from a dump" in receipt.outputs[0].not_looked_at
