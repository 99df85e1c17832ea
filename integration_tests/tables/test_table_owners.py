"""A result table belongs to one pipeline, whatever it is called and wherever it is."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from integration_tests.harness.fresh_databases import fresh_database
from integration_tests.harness.postgres_cluster import await_row
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.publish import home
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.tables.table_owners import TableOwner
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

_POSITION = "kafka_topic text, kafka_partition integer, kafka_offset bigint"
_COLUMNS = f"number bigint, {_POSITION}"


def _pipeline(name: str, *outputs: Output, hash_: str = "hash") -> PipelineLayout:
    return replace(layout_of(*outputs), pipeline=name, definition_hash=hash_)


def _appends(name: str, table: str) -> PipelineLayout:
    return _pipeline(name, append_table(table, number="bigint"))


def _refused(
    dsn: str, layout: PipelineLayout, databases: Mapping[str, str] | None = None
) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        PostgresDriver(dsn=dsn, layout=layout, databases=databases or {})
    assert "TABLE_OWNED" == raised.value.code
    return raised.value


@pytest.mark.parametrize("spelled", ["numbers", "public.numbers"])
def test_a_second_pipeline_with_the_same_table_is_refused_by_the_name_of_the_first(
    home_dsn: str, spelled: str
) -> None:
    """Nothing of it is left: neither a claim nor a registration."""
    PostgresDriver(dsn=home_dsn, layout=_appends("first", "numbers")).append([(5,)])
    error = _refused(home_dsn, _appends("second", spelled))
    assert "public.numbers belongs to pipeline first since " in error.saw
    assert [("first",)] == query(home_dsn, "SELECT pipeline FROM tallyweir.pipeline")


def test_a_name_in_other_letters_is_another_table(home_dsn: str) -> None:
    """Names are taken as they are written."""
    PostgresDriver(dsn=home_dsn, layout=_appends("first", "numbers"))
    PostgresDriver(dsn=home_dsn, layout=_appends("second", "Numbers"))


def test_two_outputs_of_one_pipeline_may_not_share_a_table(home_dsn: str) -> None:
    """Not even by two spellings."""
    outputs = [append_table(name, number="bigint") for name in ("n", "public.n")]
    error = _refused(home_dsn, _pipeline("first", *outputs))
    assert "Two outputs of pipeline first write table public.n." == error.saw


@pytest.mark.parametrize(
    ("statements", "whole", "part"),
    [
        (
            (
                f"CREATE TABLE whole ({_COLUMNS}) PARTITION BY RANGE (number)",
                "CREATE TABLE part PARTITION OF whole DEFAULT",
            ),
            "whole",
            "part",
        ),
        (
            (f"CREATE TABLE part ({_COLUMNS})", "CREATE VIEW whole AS TABLE part"),
            "whole",
            "part",
        ),
        (
            (
                f"CREATE TABLE whole ({_COLUMNS})",
                "CREATE TABLE part () INHERITS (whole)",
            ),
            "whole",
            "part",
        ),
    ],
    ids=["partition", "view", "inherits"],
)
def test_a_table_that_is_part_of_another_pipelines_table_is_refused(
    home_dsn: str, statements: tuple[str, ...], whole: str, part: str
) -> None:
    """Whichever of the two comes first."""
    execute(home_dsn, "SET search_path = public", *statements)
    PostgresDriver(dsn=home_dsn, layout=_appends("first", whole))
    error = _refused(home_dsn, _appends("second", part))
    assert f"public.{whole} belongs to pipeline first" in error.saw
    execute(home_dsn, "DELETE FROM tallyweir_state.result_table")
    PostgresDriver(dsn=home_dsn, layout=_appends("second", part))
    assert f"public.{part}" in _refused(home_dsn, _appends("first", whole)).saw


def test_of_two_pipelines_that_start_at_once_one_is_refused(home_dsn: str) -> None:
    """By a key, so neither sees an error of the server that made no table twice."""
    together = threading.Barrier(2)

    def start(name: str) -> str:
        together.wait()
        try:
            PostgresDriver(dsn=home_dsn, layout=_appends(name, "numbers"))
        except ConfigurationError as error:
            return error.code
        return "started"

    with ThreadPoolExecutor(2) as threads:
        outcomes = sorted(threads.map(start, ["first", "second"]))
    assert ["TABLE_OWNED", "started"] == outcomes


def test_a_start_that_waits_for_another_start_names_it(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is not away; a table of the other pipeline is locked."""
    PostgresDriver(dsn=home_dsn, layout=_appends("first", "numbers"))
    short = sql.SQL("SELECT set_config('lock_timeout', '50ms', true)")
    monkeypatch.setitem(home._PUBLISH, "begin_settings", short)
    with (
        psycopg.connect(home_dsn) as keeper,
        psycopg.connect(home_dsn, application_name="a start") as other,
        ThreadPoolExecutor(1) as threads,
    ):
        keeper.execute("LOCK TABLE public.numbers")
        TableOwner(installation="here", pipeline="second").claim(other, ["others"])
        waiting = threads.submit(other.execute, "TABLE public.numbers")
        await_row(
            home_dsn, "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
        )
        with pytest.raises(RetryableError, match="TABLE_LOCKED") as raised:
            PostgresDriver(dsn=home_dsn, layout=_appends("third", "more"))
        pids = other.info.backend_pid, keeper.info.backend_pid
        keeper.commit()
        waiting.result()
    assert f"pid {pids[0]} a start" in raised.value.saw
    assert f"waits for pid {pids[1]}" in raised.value.saw


@pytest.mark.parametrize("theirs", ["part", "public.whole"])
def test_of_two_that_start_at_once_by_different_names_one_is_refused(
    home_dsn: str, theirs: str
) -> None:
    """The second waits for the first, whose claim it would not see yet."""
    execute(
        home_dsn,
        f"CREATE TABLE public.part ({_COLUMNS})",
        "CREATE VIEW public.whole AS TABLE public.part",
    )
    with psycopg.connect(home_dsn) as one, psycopg.connect(home_dsn) as other:

        def claim(connection: psycopg.Connection[TupleRow], name: str, of: str) -> None:
            TableOwner(installation="here", pipeline=name).claim(connection, [of])

        claim(one, "first", "whole")
        with ThreadPoolExecutor(1) as threads:
            second = threads.submit(claim, other, "second", theirs)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
            one.commit()
            with pytest.raises(ConfigurationError, match="belongs to pipeline first"):
                second.result()


def test_a_table_in_another_database_has_one_owner_over_all_homes(
    server_dsn: str, home_dsn: str, billing_dsn: str
) -> None:
    """The registry is where the table is, also if that is a home itself."""
    output = replace(append_table("numbers", number="bigint"), branches=("billing.0",))
    databases = {"billing": billing_dsn}
    first = _pipeline("first", output)
    PostgresDriver(dsn=home_dsn, layout=first, databases=databases)
    PostgresDriver(dsn=home_dsn, layout=first, databases=databases)
    second = _pipeline("second", output)
    assert "pipeline first since" in _refused(home_dsn, second, databases).saw
    with fresh_database(server_dsn, "home2") as other:
        migrate(other)
        error = _refused(other, first, databases)
        assert "pipeline first of another home database since" in error.saw
    migrate(billing_dsn)
    assert "first" in _refused(billing_dsn, _appends("third", "numbers")).saw


def test_a_version_that_writes_a_table_no_more_releases_it_when_it_starts(
    home_dsn: str,
) -> None:
    """Until then the former version may be at work."""
    tables = [append_table(name, number="bigint") for name in ("kept", "left")]
    tables[1] = replace(tables[1], staging_table="output_1")
    PostgresDriver(dsn=home_dsn, layout=_pipeline("first", *tables))
    left = _appends("second", "left")
    _refused(home_dsn, left)
    PostgresDriver(dsn=home_dsn, layout=_pipeline("first", tables[0], hash_="next"))
    PostgresDriver(dsn=home_dsn, layout=left)
    error = _refused(home_dsn, _pipeline("first", *tables, hash_="third"))
    assert "left" in error.saw
    assert "second" in error.saw


def test_of_two_pipelines_that_shared_a_table_before_the_older_one_keeps_it(
    home_dsn: str,
) -> None:
    """The migration decides; the younger one is told both names at its next start."""
    PostgresDriver(dsn=home_dsn, layout=_appends("older", "numbers"))
    execute(home_dsn, "DROP TABLE tallyweir_state.result_table")
    with psycopg.connect(home_dsn) as connection:
        connection.execute(
            "INSERT INTO tallyweir.pipeline (pipeline, definition, definition_hash, "
            "shards, bucket_seconds) SELECT 'younger', definition, 'h', 2, 3600 "
            "FROM tallyweir.pipeline"
        )
        connection.execute(
            "DELETE FROM tallyweir._yoyo_migration WHERE migration_id LIKE %s",
            ("%_table_owners",),
        )
    migrate(home_dsn)
    error = _refused(home_dsn, _appends("younger", "public.numbers"))
    assert "Pipeline younger is configured to write" in error.saw
    assert "belongs to pipeline older" in error.saw
    PostgresDriver(dsn=home_dsn, layout=_appends("older", "numbers"))
