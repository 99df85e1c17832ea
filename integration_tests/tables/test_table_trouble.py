"""What people do to a table that a driver writes to, and what they are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import (
    TP,
    PostgresDriver,
    Row,
    append_table,
    execute,
    layout_of,
    query,
)
from integration_tests.harness.versioned_windows import FIRST, publish
from tallyweir.sinks.postgres.outputs import table_trouble
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.publish import publish_transaction
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.tables.table_checks import exact_sources
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.ports import RowsRejectedError

_LAYOUT = layout_of(append_table("numbers", number="bigint", label="text"))
_ROWS = [(1, "one"), (2, "two"), (3, "three")]
_TABLE = (
    "CREATE TABLE numbers (number bigint, label text, kafka_topic text, "
    "kafka_partition integer, kafka_offset bigint)"
)
_SKIPPING = (
    (
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.number = 2 THEN RETURN NULL; END IF; RETURN NEW; END $$"
    ),
    "CREATE TRIGGER skip BEFORE INSERT ON numbers FOR EACH ROW EXECUTE FUNCTION skip()",
)
_RAISING = (
    (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE 'read only today'; END $$"
    ),
    "CREATE TRIGGER closed BEFORE INSERT ON numbers EXECUTE FUNCTION refuse()",
)


@pytest.mark.parametrize(
    ("statements", "code", "words"),
    [
        (
            (_TABLE, "CREATE RULE none AS ON INSERT TO numbers DO INSTEAD NOTHING"),
            "TABLE_HAS_RULE",
            "Table numbers has the rule none.",
        ),
        (
            (
                _TABLE,
                (
                    "CREATE RULE sometimes AS ON INSERT TO numbers "
                    "WHERE NEW.number = 2 DO INSTEAD NOTHING"
                ),
            ),
            "TABLE_HAS_RULE",
            "Table numbers has the rule sometimes.",
        ),
        (
            (
                _TABLE.replace("numbers", "others"),
                "CREATE VIEW numbers AS TABLE others",
                _SKIPPING[0],
                (
                    "CREATE TRIGGER elsewhere INSTEAD OF INSERT ON numbers "
                    "FOR EACH ROW EXECUTE FUNCTION skip()"
                ),
            ),
            "TABLE_HAS_RULE",
            "Table numbers has the INSTEAD OF trigger elsewhere.",
        ),
        (
            (_TABLE, *_RAISING),
            "TABLE_REFUSES_ALL",
            "P0001 read only today. Its statement triggers: closed.",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_the_start_by_name(
    home_dsn: str, statements: tuple[str, ...], code: str, words: str
) -> None:
    """A batch would fail, or rows would be nowhere, for ever."""
    _execute(home_dsn, *statements)
    with pytest.raises(ConfigurationError) as raised:
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert (raised.value.code, words in raised.value.saw) == (code, True)


@pytest.mark.parametrize(
    ("change", "undo", "words"),
    [
        (
            (
                "ALTER TABLE numbers ADD owner text NOT NULL DEFAULT ''; "
                "ALTER TABLE numbers ALTER owner DROP DEFAULT"
            ),
            "ALTER TABLE numbers DROP COLUMN owner",
            "The table requires values for owner, which the pipeline does not write.",
        ),
        (
            "ALTER TABLE numbers DROP COLUMN label",
            "ALTER TABLE numbers ADD COLUMN label text",
            "The table has no column label.",
        ),
        (
            "ALTER TABLE numbers RENAME COLUMN label TO name",
            "ALTER TABLE numbers RENAME COLUMN name TO label",
            "The table has no column label.",
        ),
        (
            "ALTER TABLE numbers ALTER COLUMN label TYPE integer USING 0",
            "ALTER TABLE numbers ALTER COLUMN label TYPE text",
            "The types do not fit",
        ),
        (
            "ALTER TABLE numbers RENAME TO gone",
            "ALTER TABLE gone RENAME TO numbers",
            "Table numbers does not exist",
        ),
        (
            "CREATE RULE none AS ON INSERT TO numbers DO INSTEAD NOTHING",
            "DROP RULE none ON numbers",
            "Table numbers has the rule none.",
        ),
        (
            f"{_RAISING[0]}; {_RAISING[1]}",
            "DROP TRIGGER closed ON numbers",
            "P0001 read only today. Its statement triggers: closed.",
        ),
    ],
)
def test_a_table_that_is_changed_under_a_driver_stops_it_and_loses_nothing(
    home_dsn: str, change: str, undo: str, words: str
) -> None:
    """It is told by name; not an event becomes a dead letter."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert driver.append(_ROWS) is PublishOutcome.COMMITTED
    _execute(home_dsn, change)
    plan = driver.plan(len(_ROWS))
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, _ROWS)})
    with pytest.raises(ConfigurationError) as raised:
        driver.publish(plan, tally)
    assert raised.value.code == "TABLE_CHANGED"
    assert words in str(raised.value)
    _execute(home_dsn, undo)
    assert driver.publish(plan, tally) is PublishOutcome.COMMITTED
    assert query(home_dsn, "SELECT sum(dead) FROM tallyweir.batch_partition") == [(0,)]


def test_windows_whose_column_is_made_narrower_stop_the_driver(home_dsn: str) -> None:
    """A sum that it rounds would be verified against nothing but itself."""
    driver = PostgresDriver(dsn=home_dsn, layout=FIRST)
    assert publish(driver, 1, 2, [2]) is PublishOutcome.COMMITTED
    _execute(home_dsn, "ALTER TABLE by_origin ALTER events TYPE integer")
    with pytest.raises(ConfigurationError, match="TABLE_CHANGED") as raised:
        publish(driver, 2, 3, [3])
    assert "events is integer, not bigint" in raised.value.saw
    _execute(home_dsn, "ALTER TABLE by_origin ALTER events TYPE bigint")
    driver = PostgresDriver(dsn=home_dsn, layout=FIRST)
    assert publish(driver, 2, 3, [3]) is PublishOutcome.COMMITTED
    assert query(home_dsn, "SELECT events FROM public.by_origin") == [(5,)]


def test_results_whose_column_is_made_narrower_stop_the_driver(home_dsn: str) -> None:
    """No event stands for what a function has given that could be a dead letter."""
    driver = PostgresDriver(dsn=home_dsn, layout=_keyed())
    _execute(home_dsn, "ALTER TABLE totals ALTER label TYPE varchar(3)")
    plan = driver.plan(1)
    tally = driver.stage(plan, {"output_1_rows": [("a", 1, 0)]})
    with pytest.raises(ConfigurationError, match="TABLE_CHANGED") as raised:
        driver.publish(plan, tally)
    assert "label is character varying(3), not text" in raised.value.saw
    _execute(home_dsn, "ALTER TABLE totals ALTER label TYPE text")
    assert driver.publish(plan, tally) is PublishOutcome.COMMITTED


def test_rows_that_tasks_copied_to_a_narrower_column_stop_the_driver(
    home_dsn: str,
) -> None:
    """COPY rounds them, and takes them for what they were."""
    output = replace(append_table("numbers", number="numeric"), copied_by_tasks=True)
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(output))
    _execute(home_dsn, "ALTER TABLE numbers ALTER number TYPE numeric(4,1)")
    plan = driver.plan(1)
    tally = driver.stage(
        plan, {"output_0": driver.positioned(plan, [(Decimal("1.250000"),)])}
    )
    with pytest.raises(ConfigurationError, match="TABLE_CHANGED") as raised:
        driver.publish(plan, tally)
    assert "number is numeric(4,1), not numeric" in raised.value.saw


def test_a_column_that_is_made_narrower_amid_a_batch_is_noticed(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its types were read, and before the rows that it would pad lock it."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(len(_ROWS))
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, _ROWS)})
    narrow = ["ALTER TABLE numbers ALTER label TYPE char(5)"]

    def read(
        connection: psycopg.Connection[TupleRow], table: str, columns: Sequence[Column]
    ) -> sql.Composed:
        found = exact_sources(connection, table, columns)
        while narrow:
            _execute(home_dsn, narrow.pop())
        return found

    monkeypatch.setattr(
        "tallyweir.sinks.postgres.outputs.append_table.exact_sources", read
    )
    with pytest.raises(RetryableError, match="types of table numbers changed"):
        driver.publish(plan, tally)
    assert narrow == []
    # Staged again, the rows that the column would pad are told by name.
    with pytest.raises(RowsRejectedError) as rejected:
        driver.publish(plan, tally)
    told = [
        (row.offset, "VALUE_WOULD_CHANGE" in row.detail) for row in rejected.value.rows
    ]
    assert told == [(0, True), (1, True)]


def test_a_schema_that_is_dropped_under_a_driver_stops_it_and_loses_nothing(
    home_dsn: str,
) -> None:
    """As a dropped table does; with it, the next start says what is gone."""
    execute(home_dsn, "CREATE SCHEMA shop")
    driver = PostgresDriver(
        dsn=home_dsn, layout=layout_of(append_table("shop.numbers", number="bigint"))
    )
    assert driver.append([(1,)]) is PublishOutcome.COMMITTED
    execute(home_dsn, "DROP SCHEMA shop CASCADE")
    with pytest.raises(ConfigurationError, match="TABLE_CHANGED") as raised:
        driver.append([(2,)])
    assert "Table shop.numbers does not exist" in raised.value.saw
    assert query(home_dsn, "SELECT sum(dead) FROM tallyweir.batch_partition") == [(0,)]
    with pytest.raises(ConfigurationError, match="TABLE_LOST"):
        PostgresDriver(dsn=home_dsn, layout=driver.layout)


def test_a_lock_is_told_with_its_holder_and_waited_for(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ALTER in a long transaction is no server that is away."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(len(_ROWS))
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, _ROWS)})
    with psycopg.connect(home_dsn, application_name="a long look") as holder:
        holder.execute("LOCK TABLE public.numbers IN SHARE MODE")
        short = sql.SQL("SELECT set_config('lock_timeout', '50ms', true)")
        with monkeypatch.context() as patch:
            for module in (publish_transaction, table_trouble):
                statements = getattr(module, "_PUBLISH", None) or module._SQL
                patch.setitem(statements, "begin_settings", short)
            with pytest.raises(RetryableError) as raised:
                driver.publish(plan, tally)
        pid = holder.info.backend_pid
    assert raised.value.code == "TABLE_LOCKED"
    assert "Table numbers was locked" in raised.value.saw
    assert f"pid {pid} a long look has a ShareLock" in raised.value.saw
    assert "LOCK TABLE public.numbers IN SHARE MODE" in raised.value.saw
    assert driver.publish(plan, tally) is PublishOutcome.COMMITTED


def test_a_server_that_leaves_while_a_refusal_is_explained_is_waited_for(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told is that it left."""

    def leave(connection: psycopg.Connection[TupleRow], _: object) -> None:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    _execute(home_dsn, _TABLE, "ALTER TABLE numbers ADD CHECK (number <> 2)")
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(len(_ROWS))
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, _ROWS)})
    monkeypatch.setattr(table_trouble, "check_result_tables", leave)
    with pytest.raises(RetryableError):
        driver.publish(plan, tally)


def test_a_table_that_takes_no_row_of_a_batch_stops_the_driver(home_dsn: str) -> None:
    """A trigger that puts all rows elsewhere would make every event a dead letter."""
    _execute(
        home_dsn,
        _TABLE,
        "CREATE TABLE elsewhere (LIKE numbers)",
        "CREATE FUNCTION send() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.elsewhere SELECT NEW.*; RETURN NULL; END $$",
        "CREATE TRIGGER send BEFORE INSERT ON numbers FOR EACH ROW "
        "EXECUTE FUNCTION send()",
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    with pytest.raises(ConfigurationError, match="TABLE_SKIPS_ROWS") as raised:
        driver.append([(n, "n") for n in range(100)])
    assert "Table numbers silently skipped 100 rows" in raised.value.saw
    assert query(home_dsn, "SELECT FROM public.elsewhere") == []
    # Of fewer rows each may be one that the trigger is about.
    with pytest.raises(RowsRejectedError) as rejected:
        driver.append([(n, "n") for n in range(3)])
    assert len(rejected.value.rows) == 3
    # So it does where tasks copy rows themselves.
    copied = replace(
        append_table("numbers", number="bigint", label="text"), copied_by_tasks=True
    )
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(copied))
    with pytest.raises(ConfigurationError, match="TABLE_SKIPS_ROWS"):
        driver.append([(n, "n") for n in range(100)])


def test_rows_of_a_table_that_takes_all_are_not_refused_with_those_of_another(
    home_dsn: str,
) -> None:
    """They are looked at too, and a key of the user's knows each of them once."""
    outputs = [
        replace(append_table(table, number="bigint"), staging_table=f"output_{index}")
        for index, table in enumerate(("taking", "picky"))
    ]
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(*outputs))
    _execute(
        home_dsn,
        "ALTER TABLE public.taking ADD PRIMARY KEY (number)",
        "ALTER TABLE public.picky ADD CHECK (number <> 5)",
    )
    plan = driver.plan(100)
    rows = driver.positioned(plan, [(number,) for number in range(100)])
    tally = driver.stage(plan, {"output_0": rows, "output_1": rows})
    with pytest.raises(RowsRejectedError) as raised:
        driver.publish(plan, tally)
    assert [row.offset for row in raised.value.rows] == [5]


def test_a_row_that_the_table_skips_is_refused_by_a_task_that_copies_it(
    home_dsn: str,
) -> None:
    """At least once: the task names it, and copies the others."""
    _execute(home_dsn, _TABLE, *_SKIPPING)
    output = replace(
        append_table("numbers", number="bigint", label="text"), copied_by_tasks=True
    )
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(output))
    plan = driver.plan(len(_ROWS))
    rows = driver.positioned(plan, _ROWS)
    with pytest.raises(RowsRejectedError) as raised:
        driver.stage(plan, {"output_0": rows})
    (row,) = raised.value.rows
    assert (row.topic_partition, row.offset) == (TP, 1)
    assert "ROW_SKIPPED" in row.detail
    _execute(home_dsn, "ALTER TABLE numbers ADD COLUMN owner text NOT NULL")
    with pytest.raises(ConfigurationError, match="TABLE_CHANGED"):
        driver.stage(plan, {"output_0": rows})


def test_a_result_of_a_function_may_not_be_skipped(home_dsn: str) -> None:
    """No event stands for it that could be a dead letter."""
    driver = PostgresDriver(dsn=home_dsn, layout=_keyed())
    _execute(home_dsn, *(one.replace("numbers", "totals") for one in _SKIPPING))
    plan = driver.plan(1)
    rows: list[Row] = [("a", 1, 0), ("b", 2, 1)]
    tally = driver.stage(plan, {"output_1_rows": rows})
    with pytest.raises(TallyweirError) as raised:
        driver.publish(plan, tally)
    assert raised.value.code == "TABLE_SKIPS_ROWS"
    assert "Table totals silently skipped 1 rows" in raised.value.saw


def _keyed() -> PipelineLayout:
    return layout_of(
        KeyedTable(
            table="totals",
            staging_table="output_1",
            event_columns=(),
            key=(Column(name="label", postgres_type="text"),),
            columns=(Column(name="number", postgres_type="bigint"),),
        )
    )


def _execute(dsn: str, *statements: str) -> None:
    for statement in statements:
        execute(dsn, f"SET search_path = public; {statement}")
