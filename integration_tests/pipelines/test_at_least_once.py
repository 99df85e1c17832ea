"""Rows that tasks copy by themselves: never lost, maybe repeated, always told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    TP,
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.audit import Check, Receipt, verify
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FatalError,
    FencedError,
    RetryableError,
)
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.ports import RowsRejectedError

_OFFSETS = "SELECT kafka_offset FROM numbers ORDER BY 1"
_NEXT = "SELECT next_offset FROM tallyweir.partition_progress"
_POSITION = "kafka_topic text, kafka_partition integer, kafka_offset bigint"


def _layout(
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
    columns: Mapping[str, str] = MappingProxyType({"number": "bigint"}),
) -> PipelineLayout:
    output = replace(
        append_table("numbers", **columns),
        copied_by_tasks=guarantee is Guarantee.AT_LEAST_ONCE,
    )
    definition = {
        "guarantee": guarantee.value,
        "source": {
            "topic": TP.topic,
            "schema": "number.v1",
            "event_id": {"field": "number"},
            "event_time": "at",
        },
        "outputs": [{"table": "numbers", "kind": "append"}],
    }
    return replace(
        layout_of(output),
        definition=json.dumps(definition),
        definition_hash=guarantee.value,
        guarantee=guarantee,
    )


_LAYOUT = _layout()


def _numbers(first: int, count: int) -> list[tuple[int]]:
    return [(number,) for number in range(first, first + count)]


def _verify(dsn: str) -> tuple[Receipt, dict[str, Check]]:
    with connect(dsn, application_name="test audit") as connection:
        connection.commit()
        receipt = verify(connection, PIPELINE)
    return receipt, {check.name: check for check in receipt.checks}


def test_rows_are_in_their_table_before_the_offsets_follow(home_dsn: str) -> None:
    """A reader sees a task's rows at once; the ledger says what they promise."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append(_numbers(0, 1))
    plan = driver.plan(2)
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, _numbers(1, 2))})
    assert [(0,), (1,), (2,)] == query(home_dsn, _OFFSETS)
    assert [(1,)] == query(home_dsn, _NEXT)

    driver.publish(plan, tally)

    assert [(0,), (1,), (2,)] == query(home_dsn, _OFFSETS)
    assert [(3,)] == query(home_dsn, _NEXT)
    assert [("at_least_once",)] == query(
        home_dsn, "SELECT DISTINCT guarantee FROM tallyweir.batch"
    )
    receipt, checks = _verify(home_dsn)
    assert receipt.is_verified, receipt.failed
    assert "at least once" in receipt.summary
    assert "at_least_once" == receipt.as_json()["guarantee"]
    assert (3, 0) == (checks["append_outputs"].checked, checks["repeated_rows"].checked)


def test_a_batch_that_runs_again_repeats_its_rows_and_verify_counts_them(
    home_dsn: str,
) -> None:
    """The first driver dies behind its tasks; its rows stay beside its successor's."""
    killed = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    killed.append(_numbers(0, 1))
    plan = killed.plan(3)
    rows = killed.positioned(plan, _numbers(1, 3))
    killed.stage(plan, {"output_0": rows[:2]})
    _, checks = _verify(home_dsn)
    assert "2 more of batches that were not published" == checks["repeated_rows"].note

    PostgresDriver(dsn=home_dsn, layout=_LAYOUT).append(_numbers(1, 3))

    assert [(0,), (1,), (1,), (2,), (2,), (3,)] == query(home_dsn, _OFFSETS)
    receipt, checks = _verify(home_dsn)
    assert receipt.is_verified, receipt.failed
    assert 2 == checks["repeated_rows"].checked
    assert not checks["repeated_rows"].note


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM numbers WHERE kafka_offset = 1",
        "UPDATE numbers SET kafka_offset = 2 WHERE kafka_offset = 1",
        "UPDATE numbers SET kafka_offset = 9 WHERE kafka_offset = 1",
        "ALTER TABLE numbers DROP COLUMN kafka_offset",
    ],
)
def test_verify_finds_a_row_that_is_lost(home_dsn: str, damage: str) -> None:
    """Repeats do not make up for an event that is not there at all."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT).stage_rows(
        "output_0", [(0, TP.topic, 0, 0), (0, TP.topic, 0, 0)], attempt=70
    )
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT).append(_numbers(0, 3))
    receipt, _ = _verify(home_dsn)
    assert receipt.is_verified, receipt.failed
    execute(home_dsn, damage)
    receipt, checks = _verify(home_dsn)
    assert (checks["append_outputs"],) == receipt.failed


def test_a_row_of_an_event_that_was_put_aside_in_the_end_is_told_apart(
    home_dsn: str,
) -> None:
    """A run that came to nothing took the event; the one that counts could not."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT).append(_numbers(0, 3))
    execute(
        home_dsn,
        "INSERT INTO tallyweir.dead_letter (pipeline, sequence, kafka_topic, "
        "kafka_partition, kafka_offset, kafka_timestamp, reason, detail) "
        "VALUES ('numbers', 1, 'numbers', 0, 1, now(), 'REJECTED_BY_POSTGRES', '')",
        "UPDATE tallyweir.batch_partition SET committed = 2, dead = 1",
        "UPDATE tallyweir.batch_output SET events = 2, rows = 2",
        "UPDATE tallyweir.batch SET checksum = 2",
    )
    receipt, checks = _verify(home_dsn)
    assert receipt.is_verified, receipt.failed
    assert 0 == checks["repeated_rows"].checked
    assert (
        "1 more of events that became dead letters in the end"
        == checks["repeated_rows"].note
    )


def test_a_superseded_driver_may_repeat_rows_but_moves_no_offset(home_dsn: str) -> None:
    """Its staging is dropped, so at most a task that was there already writes."""
    old = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = old.plan(2)
    rows = {"output_0": old.positioned(plan, _numbers(0, 2))}
    tally = old.stage(plan, rows)
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT).append(_numbers(0, 3))

    with pytest.raises(FencedError):
        old.publish(plan, tally)
    # It cannot even say whose rows these are.
    with pytest.raises(FatalError, match=r"attempt\.1"):
        old.stage(plan, rows)

    assert [(3,)] == query(home_dsn, _NEXT)
    assert 5 == len(query(home_dsn, _OFFSETS))
    receipt, checks = _verify(home_dsn)
    assert receipt.is_verified, receipt.failed
    assert 2 == checks["repeated_rows"].checked


def test_rows_without_their_receipt_are_not_believed(home_dsn: str) -> None:
    """A crash of the server, or a failover, may have taken them along with it."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(2)
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, _numbers(0, 2))})
    table = driver.staging_table("output_0")
    with connect(home_dsn, application_name="test crash") as connection:
        execute(home_dsn, f"TRUNCATE {table.as_string(connection)}")

    with pytest.raises(RetryableError, match="STAGED_ROWS_MISSING"):
        driver.publish(plan, tally)

    driver.append(_numbers(0, 2))
    assert [(0,), (0,), (1,), (1,)] == query(home_dsn, _OFFSETS)


_REFUSALS = {
    "check": "number bigint CHECK (number % 14 <> 3)",
    "not null": (
        "number bigint, copy bigint NOT NULL "
        "GENERATED ALWAYS AS (nullif(nullif(number, 3), 17)) STORED"
    ),
    "deferred key": (
        "number bigint REFERENCES known DEFERRABLE INITIALLY DEFERRED, "
        "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    ),
}


@pytest.mark.parametrize("refusing", _REFUSALS)
def test_exactly_the_rows_that_the_table_refuses_are_named(
    home_dsn: str, refusing: str
) -> None:
    """The others can be copied again without them, as nothing was left behind."""
    execute(
        home_dsn,
        "SET search_path = public; CREATE TABLE known (number bigint PRIMARY KEY)",
        "INSERT INTO public.known SELECT n FROM generate_series(0, 19) AS n "
        "WHERE n NOT IN (3, 17)",
        f"CREATE TABLE public.numbers ({_POSITION}, {_REFUSALS[refusing]})".replace(
            "known", "public.known"
        ),
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(20)
    rows = driver.positioned(plan, _numbers(0, 20))
    with pytest.raises(RowsRejectedError) as raised:
        driver.stage(plan, {"output_0": rows})
    assert [3, 17] == [row.offset for row in raised.value.rows]
    assert {TP} == {row.topic_partition for row in raised.value.rows}
    assert "numbers refused the row: 23" in raised.value.rows[0].detail
    assert [] == query(home_dsn, _OFFSETS)
    good = [row for row in rows if row[0] not in (3, 17)]
    driver.stage_rows("output_0", good, attempt=70)
    assert 18 == len(query(home_dsn, _OFFSETS))


def test_a_table_that_refuses_without_a_row_to_blame_stops_the_pipeline(
    home_dsn: str,
) -> None:
    """Looking for the row again and again would be a loop without end."""
    execute(
        home_dsn,
        f"CREATE TABLE public.numbers ({_POSITION}, number bigint)",
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF (SELECT count(*) FROM new) > 1 THEN RAISE 'too many'; END IF; RETURN NULL; "
        "END $$",
        "CREATE TRIGGER refuse AFTER INSERT ON public.numbers REFERENCING "
        "NEW TABLE AS new FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()",
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(2)
    with pytest.raises(FatalError, match="too many"):
        driver.stage(plan, {"output_0": driver.positioned(plan, _numbers(0, 2))})


_TYPES: dict[str, tuple[Any, Any]] = {
    "bigint": (7, 7),
    "boolean": (True, True),
    "bytea": (b"\x00", b"\x00"),
    "double precision": (0.5, 0.5),
    "integer": (7, 7),
    "jsonb": ('{"b": [1, null], "a": "é"}', {"a": "é", "b": [1, None]}),
    "numeric": (7, 7),
    "smallint": (7, 7),
    "text": ("é", "é"),
}


def test_every_type_of_column_can_be_copied(home_dsn: str) -> None:
    """Nested values too, which are staged as text otherwise; and nulls of all."""
    columns = {f"c{number}": kind for number, kind in enumerate(_TYPES)}
    driver = PostgresDriver(dsn=home_dsn, layout=_layout(columns=columns))
    values = [given for given, _ in _TYPES.values()]
    driver.append([tuple(values), (None,) * len(values)])
    found = query(home_dsn, f"SELECT {', '.join(columns)} FROM numbers ORDER BY 1")
    assert [tuple(said for _, said in _TYPES.values()), (None,) * len(values)] == found


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ("number integer", "TABLE_TYPES_DIFFER"),
        ("number bigint UNIQUE", "TABLE_REFUSES_REPEATS"),
        (
            "number bigint, UNIQUE (kafka_topic, kafka_partition, kafka_offset)",
            "TABLE_REFUSES_REPEATS",
        ),
        ("number bigint, EXCLUDE (number WITH =)", "TABLE_REFUSES_REPEATS"),
        (
            "number bigint, half bigint GENERATED ALWAYS AS (number / 2) STORED UNIQUE",
            "TABLE_REFUSES_REPEATS",
        ),
    ],
)
def test_a_table_that_does_not_take_repeated_copies_is_refused(
    home_dsn: str, columns: str, code: str
) -> None:
    """What an INSERT would convert, or a key would refuse the second time."""
    execute(home_dsn, f"CREATE TABLE public.numbers ({_POSITION}, {columns})")
    exact = replace(_layout(Guarantee.EXACTLY_ONCE), pipeline="exact")
    PostgresDriver(dsn=home_dsn, layout=exact)
    execute(home_dsn, "DELETE FROM tallyweir_state.result_table")
    with pytest.raises(ConfigurationError, match=code):
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT)


def test_a_key_of_the_rows_own_does_not_refuse_repeats(home_dsn: str) -> None:
    """A number that Postgres counts up differs in every copy."""
    execute(
        home_dsn,
        f"CREATE TABLE public.numbers ({_POSITION}, number bigint, "
        "id bigint GENERATED ALWAYS AS IDENTITY, UNIQUE (id, number))",
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.stage_rows("output_0", [(0, TP.topic, 0, 0)], attempt=70)
    driver.append(_numbers(0, 1))
    assert [(0,), (0,)] == query(home_dsn, _OFFSETS)


def test_exactly_once_may_be_given_up_and_not_taken_back(home_dsn: str) -> None:
    """What was written before is still held to once; what comes after is not."""
    once = replace(_layout(Guarantee.EXACTLY_ONCE), definition_hash="once")
    PostgresDriver(dsn=home_dsn, layout=once).append(_numbers(0, 2))
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append(_numbers(2, 2))
    driver.stage_rows("output_0", [(2, TP.topic, 0, 2)], attempt=70)
    receipt, checks = _verify(home_dsn)
    assert receipt.is_verified, receipt.failed
    assert 1 == checks["repeated_rows"].checked

    with pytest.raises(ConfigurationError, match="GUARANTEE_RAISED"):
        PostgresDriver(dsn=home_dsn, layout=once)
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)

    execute(home_dsn, "INSERT INTO numbers SELECT * FROM numbers LIMIT 1")
    receipt, _ = _verify(home_dsn)
    (failed,) = receipt.failed
    assert "batch 1 was published exactly once" in failed.violations[0]
