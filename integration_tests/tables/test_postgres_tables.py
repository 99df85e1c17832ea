"""Tables that are there before the pipeline: used, or refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    counted_windows,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import AggregateFunction
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import ConfigurationError

_LAYOUT = layout_of(append_table("public.numbers", number="bigint"))
_POSITION = "kafka_topic text, kafka_partition integer, kafka_offset bigint"
_SELECTED = (
    "SELECT DISTINCT 1::bigint AS number, 't' AS kafka_topic, 0 AS kafka_partition, "
    "0::bigint AS kafka_offset"
)
_WINDOWS = counted_windows("public.by_origin", "origin")
_WINDOW_COLUMNS = (
    "window_start timestamptz, window_end timestamptz, origin text, events bigint, "
    "pane text, final boolean"
)


def _refused(dsn: str, layout: PipelineLayout) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        PostgresDriver(dsn=dsn, layout=layout)
    return raised.value


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (f"{_POSITION}, amount bigint", "The table has no column number."),
        (
            f"{_POSITION}, number bigint, owner text NOT NULL",
            "The table requires values for owner, which the pipeline does not write.",
        ),
        (f"{_POSITION}, number boolean", "The types do not fit: "),
        (
            f"{_POSITION}, number bigint GENERATED ALWAYS AS (1) STORED",
            "The types do not fit: ",
        ),
        ("number bigint", "no column kafka_offset, kafka_partition, kafka_topic."),
    ],
)
def test_a_table_with_other_columns_is_refused_showing_both(
    home_dsn: str, columns: str, why: str
) -> None:
    """The operator sees what is there, what is wanted, and what is wrong."""
    execute(home_dsn, f"CREATE TABLE public.numbers ({columns})")
    error = _refused(home_dsn, _LAYOUT)
    assert "TABLE_DIFFERS" == error.code
    assert "exists with (" in error.saw
    assert "the pipeline writes (number bigint, kafka_topic text, " in error.saw
    assert (
        columns.split(" NOT NULL", maxsplit=1)[0].split(" GENERATED", maxsplit=1)[0]
        in error.saw
    )
    assert why in error.why


@pytest.mark.parametrize(
    "more",
    ["note text", "id bigint GENERATED ALWAYS AS IDENTITY", "at date DEFAULT now()"],
)
def test_a_table_with_more_columns_that_may_stay_empty_is_used(
    home_dsn: str, more: str
) -> None:
    """What the pipeline does not know is left to the table."""
    execute(home_dsn, f"CREATE TABLE public.numbers ({more}, number int, {_POSITION})")
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert PublishOutcome.COMMITTED is driver.append([(5,)])
    assert [(5, 0)] == query(home_dsn, "SELECT number, kafka_offset FROM numbers")


def test_a_window_table_without_its_key_is_refused_with_the_statement(
    home_dsn: str,
) -> None:
    """The fix can be copied, and after it the table is used."""
    execute(home_dsn, f"CREATE TABLE public.by_origin ({_WINDOW_COLUMNS})")
    layout = layout_of(_WINDOWS)
    error = _refused(home_dsn, layout)
    assert "TABLE_KEY_MISSING" == error.code
    execute(home_dsn, error.fix)
    PostgresDriver(dsn=home_dsn, layout=layout)


@pytest.mark.parametrize(
    "key",
    [
        "UNIQUE (window_start, origin)",
        "UNIQUE NULLS NOT DISTINCT (window_start)",
        "UNIQUE NULLS NOT DISTINCT (window_start, origin, pane)",
        "UNIQUE NULLS NOT DISTINCT (window_start, origin) DEFERRABLE",
        "EXCLUDE (origin WITH =)",
    ],
)
def test_a_key_that_cannot_tell_groups_apart_does_not_count(
    home_dsn: str, key: str
) -> None:
    """Only a key over exactly the window and its groups, NULL included, will do."""
    execute(home_dsn, f"CREATE TABLE public.by_origin ({_WINDOW_COLUMNS}, {key})")
    assert "TABLE_KEY_MISSING" == _refused(home_dsn, layout_of(_WINDOWS)).code


def test_open_windows_of_another_definition_are_not_continued(home_dsn: str) -> None:
    """Partials of other aggregates cannot be merged."""
    PostgresDriver(dsn=home_dsn, layout=layout_of(_WINDOWS))
    (aggregate,) = _WINDOWS.aggregates
    changed = replace(
        _WINDOWS,
        aggregates=(replace(aggregate, function=AggregateFunction.SUM),),
    )
    assert "WINDOW_CHANGED" == _refused(home_dsn, layout_of(changed)).code


def test_a_revisions_table_whose_name_is_too_long_is_refused(home_dsn: str) -> None:
    """Postgres would cut the name and let two outputs share one table."""
    long = replace(_WINDOWS, table="w" * 54, late=LatePolicy.REVISE)
    assert "TABLE_NAME_TOO_LONG" == _refused(home_dsn, layout_of(long)).code
    fits = replace(_WINDOWS, table="w" * 53, late=LatePolicy.REVISE)
    PostgresDriver(dsn=home_dsn, layout=layout_of(fits))


@contextmanager
def _powerless_role(dsn: str) -> Iterator[str]:
    """Yield a DSN of a role that may connect and nothing else."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CREATE ROLE powerless LOGIN PASSWORD 'secret'")
        try:
            yield psycopg.conninfo.make_conninfo(
                dsn, user="powerless", password="secret"
            )
        finally:
            owner.execute("DROP OWNED BY powerless")
            owner.execute("DROP ROLE powerless")


def test_a_role_without_privileges_is_told_what_it_lacks(home_dsn: str) -> None:
    """The message names the object, so that the right GRANT can be made."""
    with _powerless_role(home_dsn) as dsn:
        error = _refused(dsn, _LAYOUT)
    assert "POSTGRES_PERMISSION" == error.code
    assert "schema tallyweir" in error.saw


def test_a_privilege_taken_away_while_running_is_told(home_dsn: str) -> None:
    """Publishing fails as a matter of configuration; nothing is published."""
    with _powerless_role(home_dsn) as dsn:
        driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
        for schema in ("tallyweir", "tallyweir_stage_1_1"):
            execute(
                home_dsn,
                f"GRANT USAGE ON SCHEMA {schema} TO powerless",
                f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO powerless",
            )
        plan = driver.plan(1)
        tally = driver.stage(plan, {"output_0": driver.positioned(plan, [(1,)])})
        driver.home.close()
        driver.home._link._dsn = dsn
        with pytest.raises(ConfigurationError) as raised:
            driver.publish(plan, tally)
        driver.home.close()
        assert "POSTGRES_PERMISSION" == raised.value.code
        assert "numbers" in raised.value.saw
        assert [] == query(home_dsn, "SELECT * FROM tallyweir.batch")


def test_a_schema_that_does_not_exist_is_named_with_the_fix(home_dsn: str) -> None:
    """It is the user's to make, with the rights that he wants there."""
    layout = layout_of(append_table("missing.numbers", number="bigint"))
    error = _refused(home_dsn, layout)
    assert "POSTGRES_SCHEMA_MISSING" == error.code
    assert 'schema "missing" does not exist' in error.saw
    execute(home_dsn, "CREATE SCHEMA missing")
    PostgresDriver(dsn=home_dsn, layout=layout)


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE MATERIALIZED VIEW numbers AS {_SELECTED}",
        "CREATE SEQUENCE numbers",
        f"CREATE TYPE numbers AS (number bigint, {_POSITION})",
        f"CREATE VIEW numbers AS {_SELECTED}",
    ],
    ids=["materialized view", "sequence", "type", "view"],
)
def test_what_has_the_tables_name_and_is_no_table_is_the_users_to_change(
    home_dsn: str, statement: str
) -> None:
    """Whatever Postgres says about it; it is no defect to report."""
    execute(home_dsn, "SET search_path = public", statement)
    assert _refused(home_dsn, _LAYOUT).code in {"TABLE_DIFFERS", "TABLE_UNFIT"}


def test_a_table_of_too_many_columns_is_refused_with_what_postgres_says(
    home_dsn: str,
) -> None:
    """A limit of Postgres, told as one."""
    columns = dict.fromkeys((f"c{n}" for n in range(1_700)), "bigint")
    error = _refused(home_dsn, layout_of(append_table("numbers", **columns)))
    assert "TABLE_UNFIT" == error.code
    assert "at most 1600 columns" in error.saw
