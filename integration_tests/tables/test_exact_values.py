"""What a table of one's own holds is what the event gave, or the row is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from integration_tests.tables.test_postgres_tables import _WINDOW_COLUMNS, _WINDOWS
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.ports import RowsRejectedError

_POSITION = "kafka_topic text, kafka_partition integer, kafka_offset bigint"
_NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
_MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
_HALF = timedelta(milliseconds=500)


def _started(dsn: str, produced: str, declared: str, *more: str) -> PostgresDriver:
    execute(dsn, *more, f"CREATE TABLE public.t (v {declared}, {_POSITION})")
    return PostgresDriver(dsn=dsn, layout=layout_of(append_table("t", v=produced)))


@pytest.mark.parametrize(
    ("produced", "declared", "kept", "changed"),
    [
        ("numeric", "numeric(10,2)", [Decimal("12.34"), Decimal(7), None], ["12.345"]),
        ("numeric", "numeric(10,-2)", [Decimal(1200)], [Decimal(1234)]),
        ("numeric", "integer", [Decimal(5)], [Decimal("5.5")]),
        ("numeric", "public.domain_of_cents", [Decimal("1.5")], [Decimal("1.555")]),
        ("double precision", "integer", [2.0], [2.5, 1e12]),
        ("double precision", "numeric", [0.5], [0.1234567890123456789]),
        ("bigint", "real", [1 << 24], [(1 << 24) + 1]),
        ("bigint", "double precision", [1 << 53], [(1 << 53) + 1]),
        ("bigint", "integer", [1 << 30], [1 << 31]),
        ("text", "varchar(3)", ["abc", ""], ["abcd", "ab  "]),
        ("text", "char(3)", ["abc", None], ["ab", "abcd", "ab  "]),
        ("text", "name", ["a" * 63], ["a" * 64]),
        ("text", '"char"', ["a"], ["ab"]),
        ("timestamp with time zone", "timestamptz(0)", [_NOON], [_NOON + _HALF]),
        ("timestamp with time zone", "timestamp(0)", [_NOON], [_NOON + _HALF]),
        ("timestamp with time zone", "date", [_MIDNIGHT], [_NOON]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_the_column_would_change_is_refused_and_no_other(
    home_dsn: str, produced: str, declared: str, kept: list[Any], changed: list[Any]
) -> None:
    """By position, with the column, its type and the value; the rest goes in."""
    driver = _started(
        home_dsn,
        produced,
        declared,
        "CREATE DOMAIN domain_of_cents AS numeric(9,2)".replace(
            "DOMAIN ", "DOMAIN public."
        ),
    )
    if produced == "numeric":
        changed = [Decimal(one) for one in changed]
    mixed = [(one,) for one in (*changed, *kept)]
    plan = driver.plan(len(mixed))
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, mixed)})
    with pytest.raises(RowsRejectedError) as raised:
        driver.publish(plan, tally)
    refused = sorted(raised.value.rows, key=lambda row: row.offset)
    assert list(range(len(changed))) == [row.offset for row in refused]
    assert "refused the row: 22" in refused[-1].detail
    driver = PostgresDriver(dsn=home_dsn, layout=driver.layout)
    driver.append([(one,) for one in kept])
    assert [(len(kept),)] == query(home_dsn, "SELECT count(*) FROM public.t")


def test_the_reason_names_column_type_and_value(home_dsn: str) -> None:
    """It is what the dead letter's detail says."""
    driver = _started(home_dsn, "numeric", "numeric(10,2)")
    with pytest.raises(RowsRejectedError) as raised:
        driver.append([(Decimal("12.345"),)])
    (row,) = raised.value.rows
    assert (
        "Table t refused the row: 22000 VALUE_WOULD_CHANGE: column v, which is "
        "numeric(10,2), cannot hold '12.345000' as it is." == row.detail
    )


def _refused(dsn: str, layout: PipelineLayout) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        PostgresDriver(dsn=dsn, layout=layout)
    assert "TABLE_TYPES_DIFFER" == raised.value.code
    return raised.value


@pytest.mark.parametrize(
    ("produced", "declared"),
    [("numeric", "real"), ("numeric", "float8"), ("double precision", "real")],
)
def test_a_type_that_changes_nearly_every_value_is_refused_at_the_start(
    home_dsn: str, produced: str, declared: str
) -> None:
    """Or the topic would pour into the dead letters; the fix can be copied."""
    execute(home_dsn, f"CREATE TABLE public.t (v {declared}, {_POSITION})")
    layout = layout_of(append_table("public.t", v=produced))
    error = _refused(home_dsn, layout)
    assert f"not {produced}" in error.saw
    execute(home_dsn, error.fix.split(": ", 1)[1])
    PostgresDriver(dsn=home_dsn, layout=layout)


def test_tables_whose_rows_cannot_be_refused_must_hold_every_value(
    home_dsn: str,
) -> None:
    """Windows, functions, and rows that tasks copy at least once."""
    columns = _WINDOW_COLUMNS.replace("events bigint", "events integer")
    execute(
        home_dsn,
        f"CREATE TABLE public.by_origin ({columns}, "
        "UNIQUE NULLS NOT DISTINCT (window_start, origin))",
        "CREATE TABLE public.k (key varchar(3), v bigint, tallyweir_ordinal integer, "
        "tallyweir_sequence bigint)",
        f"CREATE TABLE public.t (v numeric(10,2), {_POSITION})",
    )
    assert "events is integer" in _refused(home_dsn, layout_of(_WINDOWS)).saw
    keyed = KeyedTable(
        table="k",
        staging_table="output_0",
        event_columns=(),
        key=(Column(name="key", postgres_type="text"),),
        columns=(Column(name="v", postgres_type="bigint"),),
    )
    assert "key is character varying(3)" in _refused(home_dsn, layout_of(keyed)).saw
    copied = replace(append_table("t", v="numeric"), copied_by_tasks=True)
    assert "v is numeric(10,2)" in _refused(home_dsn, layout_of(copied)).saw
