"""Whose a staged row is, by the transaction that staged it, on a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg import sql

from integration_tests.harness.postgres_cluster import kill
from integration_tests.harness.postgres_driver import (
    TP,
    PostgresDriver,
    append_table,
    arrow_rows,
    execute,
    layout_of,
    query,
)
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.staging.attempt_register import ATTEMPTS
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.identity import Attempt

_OUTPUT = append_table("numbers", number="bigint", label="text")
_LAYOUT = layout_of(_OUTPUT)
_NUMBERS = "SELECT number FROM numbers ORDER BY kafka_offset"
_POSITION = "kafka_topic text, kafka_partition int, kafka_offset bigint"
#: A transaction that the server has given an id, and which changes nothing.
_USE_UP = "SELECT pg_current_xact_id()"
_NEXT_ID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
#: Crashes in which the log reached the disk, so that no id was given away again.
_FLUSHED_MAX = 5


def _transactions(driver: PostgresDriver, table: str) -> set[int]:
    statement = sql.SQL("SELECT DISTINCT xmin::text::bigint FROM {}").format(
        driver.staging_table(table)
    )
    return {found for (found,) in query(driver.dsn, statement.as_string())}


def _columns(dsn: str, table: str) -> list[str]:
    found = query(
        dsn,
        "SELECT attname::text FROM pg_attribute WHERE attnum > 0 "
        "AND NOT attisdropped AND attrelid = to_regclass(%s) ORDER BY attnum",
        table,
    )
    return [name for (name,) in found]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_id_given_away_again_after_a_crash_takes_nobodys_place(
    tmp_path: Path,
) -> None:
    """Rows of a zombie, as many and of the same id, are not those that were voted."""
    server = EmbeddedPostgres(tmp_path / "server")
    server.start()
    try:
        migrate(server.dsn)
        # Nobody writes the log to disk before the crash, but by a COMMIT that waits.
        execute(server.dsn, "ALTER SYSTEM SET wal_writer_delay = '10s'")
        driver = PostgresDriver(dsn=server.dsn, layout=_LAYOUT)
        plan = driver.plan(2)
        rows = driver.positioned(plan, [(1, "a"), (2, "b")])
        for _ in range(_FLUSHED_MAX):
            tally = driver.stage(plan, {"output_0": rows})
            (lost,) = _transactions(driver, "output_0")
            kill(server)
            server.start()
            if query(server.dsn, _NEXT_ID)[0][0] <= lost:
                break
        assert set() == _transactions(driver, ATTEMPTS)
        while query(server.dsn, _NEXT_ID)[0][0] < lost:
            execute(server.dsn, _USE_UP)
        wrong = driver.positioned(plan, [(8, "x"), (9, "y")])
        driver.stage_rows("output_0", wrong, attempt=70)
        assert {lost} == _transactions(driver, "output_0")
        driver.home.close()

        with pytest.raises(RetryableError, match="STAGED_ROWS_MISSING"):
            driver.publish(plan, tally)

        assert [] == query(server.dsn, _NUMBERS)
        tally = driver.stage(plan, {"output_0": rows})
        assert PublishOutcome.COMMITTED is driver.publish(plan, tally)
        assert [(1,), (2,)] == query(server.dsn, _NUMBERS)
    finally:
        driver.home.close()
        server.stop()


def test_frozen_rows_keep_their_transaction(home_dsn: str) -> None:
    """Vacuum against wraparound comes to staging as well, at any moment."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(1, "a"), (2, "b")])
    driver.stage_rows("output_0", driver.positioned(plan, [(9, "x")]), attempt=70)
    tally = driver.stage(plan, {"output_0": rows})
    for table in ("output_0", ATTEMPTS):
        name = driver.staging_table(table).as_string()
        execute(home_dsn, f"VACUUM (FREEZE) {name}")
        execute(home_dsn, f"VACUUM (FREEZE, FULL) {name}")

    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)

    assert [(1,), (2,)] == query(home_dsn, _NUMBERS)


def test_rows_under_a_savepoint_are_nobodys(home_dsn: str) -> None:
    """Their id is the savepoint's; the batch stops instead of losing them."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(1)
    rows = driver.positioned(plan, [(1, "a")])
    tally = driver.stage(plan, {"output_0": rows})
    name = driver.staging_table("output_0").as_string()
    execute(home_dsn, f"DELETE FROM {name}")
    names = TableNames(
        pipeline_number=driver.home.claim.pipeline_number,
        epoch=driver.epoch,
        sequence=plan.sequence,
    )
    with (
        connect(home_dsn, application_name="test task") as connection,
        StagingWriter(connection, names, attempt=Attempt(1)) as writer,
        connection.transaction(),
    ):
        writer.copy("output_0", _OUTPUT.columns, arrow_rows(_OUTPUT.columns, rows))

    with pytest.raises(RetryableError, match="STAGED_ROWS_MISSING"):
        driver.publish(plan, tally)


@pytest.mark.parametrize(
    ("columns", "is_whole"),
    [
        (f"label text, {_POSITION}, number bigint", True),
        (f"number bigint, label text, {_POSITION}, noted_at date", False),
        (f"number bigint, label varchar(9), {_POSITION}", False),
        (f"number bigint, label text, gone int, {_POSITION}", False),
    ],
)
def test_staging_has_the_order_of_a_table_with_the_same_columns(
    home_dsn: str, columns: str, *, is_whole: bool
) -> None:
    """Postgres then moves rows whole; else columns of one width come first."""
    execute(home_dsn, f"CREATE TABLE public.numbers ({columns})")
    if "gone" in columns:
        execute(home_dsn, "ALTER TABLE public.numbers DROP COLUMN gone")
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    staged = driver.staging_table("output_0").as_string()
    order = _columns(home_dsn, staged)
    if is_whole:
        assert _columns(home_dsn, "numbers") == order
    else:
        assert ["number", "kafka_offset", "kafka_partition"] == order[:3]

    assert PublishOutcome.COMMITTED is driver.append([(1, "a"), (2, "b")])

    moved = "SELECT number, label, kafka_topic, kafka_partition, kafka_offset "
    assert [
        (1, "a", TP.topic, TP.partition, 0),
        (2, "b", TP.topic, TP.partition, 1),
    ] == query(home_dsn, f"{moved} FROM numbers ORDER BY kafka_offset")
