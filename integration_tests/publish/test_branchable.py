"""Which tables several transactions of one database may publish at the same time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import ConfigurationError

_NUMBERS = AppendTable(
    table="numbers",
    staging_table="output_0",
    event_columns=(Column(name="number", postgres_type="bigint"),),
)
_POSITION = "kafka_topic text, kafka_partition integer, kafka_offset bigint"
_SPLIT = replace(_NUMBERS, branches=("home.0", "home.1"))


@pytest.mark.parametrize(
    "columns",
    [
        "number bigint UNIQUE",
        "number bigint UNIQUE DEFERRABLE INITIALLY DEFERRED",
        "number bigint, UNIQUE (number, kafka_topic)",
        "number bigint, EXCLUDE (number WITH =)",
        # Two events may have one offset, in different partitions.
        "number bigint, UNIQUE (kafka_offset)",
        # Exclusions may compare otherwise than by equality.
        (
            "number bigint, EXCLUDE "
            "(kafka_topic WITH =, kafka_partition WITH =, kafka_offset WITH =)"
        ),
        # Computed of what is written.
        "number bigint, half bigint GENERATED ALWAYS AS (number / 2) STORED UNIQUE",
    ],
)
def test_rows_that_may_wait_for_another_branch_are_not_split(
    home_dsn: str, columns: str
) -> None:
    """Branches commit together, so one would wait for the other until it gives up."""
    execute(home_dsn, f"CREATE TABLE public.numbers ({_POSITION}, {columns})")
    PostgresDriver(dsn=home_dsn, layout=layout_of(_NUMBERS))
    with pytest.raises(ConfigurationError, match="TABLE_REFUSES_BRANCHES") as raised:
        PostgresDriver(dsn=home_dsn, layout=layout_of(_SPLIT))
    assert "numbers" in raised.value.saw
    assert "branches: 1" in raised.value.fix


def test_an_expression_may_be_a_key_that_rows_wait_for(home_dsn: str) -> None:
    """It has no column that could tell the rows apart."""
    execute(
        home_dsn,
        f"CREATE TABLE public.numbers ({_POSITION}, number bigint)",
        "CREATE UNIQUE INDEX ON public.numbers ((number / 2))",
    )
    with pytest.raises(ConfigurationError, match="TABLE_REFUSES_BRANCHES"):
        PostgresDriver(dsn=home_dsn, layout=layout_of(_SPLIT))


@pytest.mark.parametrize(
    "columns",
    [
        "number bigint, UNIQUE (kafka_topic, kafka_partition, kafka_offset)",
        "number bigint, UNIQUE (number, kafka_offset, kafka_partition, kafka_topic)",
        "number bigint, id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    ],
)
def test_keys_that_tell_events_apart_let_branches_work(
    home_dsn: str, columns: str
) -> None:
    """No two events have one position, and no two rows one number of their own."""
    execute(home_dsn, f"CREATE TABLE public.numbers ({_POSITION}, {columns})")
    driver = PostgresDriver(dsn=home_dsn, layout=layout_of(_SPLIT))
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(1,), (1,)])
    staged = {"output_0@home.0": rows[:1], "output_0@home.1": rows[1:]}
    assert PublishOutcome.COMMITTED is driver.publish(plan, driver.stage(plan, staged))
    assert [(1,), (1,)] == query(home_dsn, "SELECT number FROM numbers")


def test_a_table_that_is_spread_over_databases_may_have_keys(
    home_dsn: str, billing_dsn: str
) -> None:
    """Each database has one transaction, in which the later of two rows is refused."""
    table = f"CREATE TABLE public.numbers ({_POSITION}, number bigint UNIQUE)"
    execute(home_dsn, table)
    execute(billing_dsn, table)
    spread = replace(_NUMBERS, branches=(HOME, "billing.0"))
    PostgresDriver(
        dsn=home_dsn, layout=layout_of(spread), databases={"billing": billing_dsn}
    )


def test_a_participants_tables_are_looked_at_as_well(
    home_dsn: str, billing_dsn: str
) -> None:
    """Where branches of another database would wait for each other."""
    execute(
        billing_dsn, f"CREATE TABLE public.numbers ({_POSITION}, number bigint UNIQUE)"
    )
    split = replace(_NUMBERS, branches=("billing.0", "billing.1"))
    with pytest.raises(ConfigurationError, match="TABLE_REFUSES_BRANCHES"):
        PostgresDriver(
            dsn=home_dsn, layout=layout_of(split), databases={"billing": billing_dsn}
        )


_PARENTS = replace(_NUMBERS, table="parents", staging_table="output_1")


@pytest.mark.parametrize(
    ("children", "parents", "is_refused"),
    [
        (("home.0", "home.1"), (HOME,), True),
        ((HOME,), ("home.0", "home.1"), True),
        ((HOME,), (HOME,), False),
    ],
)
def test_rows_of_a_pipeline_do_not_refer_to_those_of_another_branch(
    home_dsn: str,
    children: tuple[str, ...],
    parents: tuple[str, ...],
    is_refused: bool,  # noqa: FBT001 - a parameter of cases
) -> None:
    """Those are not there yet for it: good events would become dead letters."""
    own = "id bigint GENERATED ALWAYS AS IDENTITY"
    execute(
        home_dsn,
        # The number of their own keeps unique keys out of the question.
        f"CREATE TABLE public.parents ({_POSITION}, number bigint)",
        "CREATE TABLE public.known (number bigint PRIMARY KEY)",
        f"ALTER TABLE public.parents ADD {own}, ADD UNIQUE (id)",
        f"CREATE TABLE public.numbers ({_POSITION}, number bigint, "
        "parent bigint REFERENCES public.parents (id), "
        "CONSTRAINT of_others FOREIGN KEY (number) REFERENCES public.known)",
    )
    layout = layout_of(
        replace(_NUMBERS, branches=children), replace(_PARENTS, branches=parents)
    )
    if not is_refused:
        PostgresDriver(dsn=home_dsn, layout=layout)
        return
    with pytest.raises(ConfigurationError, match="TABLE_REFUSES_BRANCHES") as raised:
        PostgresDriver(dsn=home_dsn, layout=layout)
    assert "numbers_parent_fkey to parents" in raised.value.saw


def test_rows_of_a_split_table_do_not_refer_to_each_other(home_dsn: str) -> None:
    """The one that is referred to may be of another branch."""
    execute(
        home_dsn,
        f"CREATE TABLE public.numbers ({_POSITION}, number bigint, "
        "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "parent bigint REFERENCES public.numbers)",
    )
    with pytest.raises(ConfigurationError, match="numbers_parent_fkey"):
        PostgresDriver(dsn=home_dsn, layout=layout_of(_SPLIT))
