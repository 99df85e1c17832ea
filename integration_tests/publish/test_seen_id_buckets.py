"""Buckets of the seen-ID catalog are made and dropped beside whoever reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
import pytest

from integration_tests.harness.postgres_driver import (
    SECOND_US,
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.catalog import seen_id_buckets
from tallyweir.sinks.postgres.catalog.seen_id_buckets import SeenIdBuckets
from tallyweir.sinks.postgres.server.connection import DatabaseLink, connect
from tallyweir.sinks.postgres.server.locks import RESPITE_S, LockAttempts
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.ports import RowsRejectedError

HOUR = 3600
_LAYOUT = layout_of(append_table("numbers", number="bigint"))
_RUN = (1, b"a" * 16, b"a" * 16, b"a" * 16, None)
_BUCKETS = """
SELECT substring(relname FROM 'b(m?[0-9]+)$'), xmin::text
FROM pg_class
WHERE relname LIKE 'seen\\_id\\_run\\_p1\\_b%' AND relkind = 'r'
ORDER BY oid
"""


@dataclass
class _Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@contextmanager
def _read_for_long(dsn: str) -> Iterator[None]:
    """Read the whole catalog in one transaction, as verify and pg_dump do."""
    with connect(dsn, application_name="test reader") as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM tallyweir.seen_id_run")
        yield
        reader.rollback()


def _publish(driver: PostgresDriver, *buckets: int) -> PublishOutcome:
    plan = driver.plan(0)
    rows = {"seen_id_run": [(bucket, *_RUN) for bucket in buckets]}
    tally = driver.stage(plan, rows, buckets=frozenset(buckets))
    return driver.publish(plan, tally)


def _there(dsn: str) -> list[str]:
    return [bucket for bucket, _ in query(dsn, _BUCKETS)]


@pytest.fixture
def driver(home_dsn: str) -> PostgresDriver:
    """A driver that has filed IDs in one bucket."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert PublishOutcome.COMMITTED is _publish(driver, 0)
    return driver


@pytest.fixture
def link(driver: PostgresDriver) -> Iterator[DatabaseLink]:
    """A link of this test alone."""
    link = DatabaseLink(driver.dsn, application_name="test")
    yield link
    link.close()


def _buckets(link: DatabaseLink, clock: _Clock | None = None) -> SeenIdBuckets:
    return SeenIdBuckets(
        link,
        pipeline_number=1,
        bucket_seconds=HOUR,
        clock=_Clock() if clock is None else clock,
    )


def test_a_batch_gets_its_bucket_while_somebody_reads_the_catalog(
    driver: PostgresDriver,
) -> None:
    """A reader that lasts longer than a publish may wait would end the driver."""
    with _read_for_long(driver.dsn):
        assert PublishOutcome.COMMITTED is _publish(driver, 0, HOUR)
    assert ["0", str(HOUR)] == _there(driver.dsn)


def test_a_pipeline_begins_while_somebody_reads_the_catalog(
    driver: PostgresDriver,
) -> None:
    """And no other one waits for it."""
    with _read_for_long(driver.dsn):
        other = PostgresDriver(
            dsn=driver.dsn,
            layout=replace(
                _LAYOUT,
                pipeline="another",
                outputs=(append_table("others", number="bigint"),),
            ),
        )
        assert PublishOutcome.COMMITTED is _publish(other, 0)


_SHAPE = (
    (
        "SELECT attname, format_type(atttypid, atttypmod), attstorage::text, "
        "attnotnull, attislocal, attinhcount, "
        "(SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef "
        "WHERE adrelid = attrelid AND adnum = attnum) FROM pg_attribute "
        "WHERE attrelid = {table} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    ),
    (
        "SELECT replace(conname, {name}, ''), pg_get_constraintdef(oid), conislocal, "
        "coninhcount FROM pg_constraint WHERE conrelid = {table} ORDER BY 1"
    ),
    (
        "SELECT replace(pg_get_indexdef(indexrelid), {name}, ''), indisprimary, "
        "(SELECT inhparent::regclass::text FROM pg_inherits "
        "WHERE inhrelid = indexrelid) FROM pg_index WHERE indrelid = {table} ORDER BY 1"
    ),
    (
        "SELECT relowner::regrole::text, relkind::text, relispartition, "
        "relpersistence::text, reltablespace, relreplident::text "
        "FROM pg_class WHERE oid = {table}"
    ),
)


def _shape(dsn: str, name: str) -> list[object]:
    table = f"'tallyweir.{name}'::regclass"
    return [query(dsn, one.format(table=table, name=f"'{name}'")) for one in _SHAPE]


def test_what_is_attached_is_as_if_it_had_been_made_in_its_place(
    driver: PostgresDriver,
) -> None:
    """Storage, constraints, key and all that LIKE might leave out."""
    execute(
        driver.dsn,
        "CREATE TABLE tallyweir.seen_id_run_p1_b7 "
        "PARTITION OF tallyweir.seen_id_run_p1 FOR VALUES IN (7)",
        "CREATE TABLE tallyweir.seen_id_run_p7 PARTITION OF tallyweir.seen_id_run "
        "FOR VALUES IN ('seventh') PARTITION BY LIST (bucket)",
    )
    for made, in_place in (("p1_b0", "p1_b7"), ("p1", "p7")):
        made_shape = _shape(driver.dsn, f"seen_id_run_{made}")
        assert made_shape == _shape(driver.dsn, f"seen_id_run_{in_place}")


def test_a_bucket_lies_where_an_operator_has_its_table_lie(
    driver: PostgresDriver,
) -> None:
    """LIKE knows nothing of tablespaces."""
    with psycopg.connect(driver.dsn, autocommit=True) as operator:
        operator.execute("SET allow_in_place_tablespaces = on")
        operator.execute("CREATE TABLESPACE \"Fast disk\" LOCATION ''")
        try:
            operator.execute(
                'ALTER TABLE tallyweir.seen_id_run_p1 SET TABLESPACE "Fast disk"'
            )
            _publish(driver, HOUR)
            assert [("seen_id_run_p1_b3600",)] == query(
                driver.dsn,
                "SELECT tablename FROM pg_tables WHERE tablespace = 'Fast disk' "
                "AND tablename <> 'seen_id_run_p1'",
            )
        finally:
            operator.execute("DROP TABLE tallyweir.seen_id_run_p1")
            operator.execute('DROP TABLESPACE "Fast disk"')


def test_after_a_reader_was_in_the_way_nothing_is_dropped_for_a_minute(
    driver: PostgresDriver, link: DatabaseLink
) -> None:
    """Each try costs the batch and all who look IDs up; the link is kept."""
    _publish(driver, HOUR)
    clock = _Clock()
    buckets = _buckets(link, clock)
    connection = link.connected()
    with _read_for_long(driver.dsn):
        buckets.drop_before(2 * HOUR * SECOND_US)
    clock.seconds = RESPITE_S - 1
    buckets.drop_before(2 * HOUR * SECOND_US)
    assert ["0", str(HOUR)] == _there(driver.dsn)
    assert connection is link.connected()
    clock.seconds = RESPITE_S
    buckets.drop_before(2 * HOUR * SECOND_US)
    assert [] == _there(driver.dsn)


def test_who_looks_ids_up_waits_a_tenth_of_a_second_for_a_drop_that_waits(
    link: DatabaseLink,
) -> None:
    """Whoever asks for a lock comes behind those who wait for one that excludes it."""
    seen: list[str] = []

    def look(connection: psycopg.Connection[tuple[str]]) -> None:
        seen.extend(connection.execute("SHOW lock_timeout").fetchone() or ())

    assert LockAttempts(link).run("looking", look)
    assert ["100ms"] == seen


def test_many_buckets_are_made_in_portions(
    driver: PostgresDriver, link: DatabaseLink
) -> None:
    """Each holds its locks until the commit, and those left behind do no harm."""
    many = [number * HOUR for number in range(1, 251)]
    _buckets(link).create(dict.fromkeys(many, 1), live_from_us=None)
    found = query(driver.dsn, _BUCKETS)[1:]
    assert [str(bucket) for bucket in many] == [bucket for bucket, _ in found]
    transactions = [xmin for _, xmin in found]
    portions = [transactions.count(one) for one in dict.fromkeys(transactions)]
    assert [100, 100, 50] == portions
    assert PublishOutcome.COMMITTED is _publish(driver, HOUR)


def _most(dsn: str, locks_per_bucket: int = 6) -> tuple[int, int]:
    """Return max_locks_per_transaction, and how many buckets there is room for."""
    ((locks, transactions),) = query(
        dsn,
        "SELECT current_setting('max_locks_per_transaction')::integer, "
        "current_setting('max_connections')::integer + "
        "current_setting('max_prepared_transactions')::integer",
    )
    return locks, locks * transactions // locks_per_bucket


def test_a_history_that_a_server_has_no_locks_for_is_refused(
    driver: PostgresDriver, link: DatabaseLink
) -> None:
    """Ten years of history in one batch, with a horizon of a week; none is made."""
    locks, most = _most(driver.dsn)
    history = {number * HOUR: 10_001 for number in range(most + 1)}
    with pytest.raises(ConfigurationError) as raised:
        _buckets(link).create(history, live_from_us=None)
    assert "TOO_MANY_BUCKETS" == raised.value.code
    assert f"{most + 1} buckets" in raised.value.saw
    assert f"max_locks_per_transaction = {locks + 1} " in raised.value.fix
    assert "deduplicate.horizon" in raised.value.fix
    assert f"less than {most * HOUR} s" in raised.value.fix
    # Nor are few events put aside of a run, which can be brought in parts.
    with pytest.raises(ConfigurationError):
        _buckets(link).create(
            dict.fromkeys(history, 1), live_from_us=None, may_reject=False
        )
    assert ["0"] == _there(driver.dsn)


@pytest.mark.parametrize(
    "locks_per_bucket", [600, pytest.param(6, marks=pytest.mark.long)]
)
def test_the_sparsest_buckets_are_rejected_where_there_is_no_room(
    driver: PostgresDriver, monkeypatch: pytest.MonkeyPatch, locks_per_bucket: int
) -> None:
    """Of as sparse ones the oldest; what is there already stays, however sparse."""
    monkeypatch.setattr(seen_id_buckets, "_LOCKS_PER_BUCKET", locks_per_bucket)
    _, most = _most(driver.dsn, locks_per_bucket)
    wanted = [number * HOUR for number in range(1, most + 2)]
    plan = driver.plan(0)
    # One ID in each but the oldest, which has two.
    tally = driver.stage(plan, {}, buckets=[HOUR, *wanted])
    with pytest.raises(RowsRejectedError) as raised:
        driver.publish(plan, tally)
    rejected = [one.bucket for one in raised.value.buckets]
    assert [2 * HOUR, 3 * HOUR] == rejected
    assert ["0"] == _there(driver.dsn)
    assert PublishOutcome.COMMITTED is _publish(driver, *set(wanted) - set(rejected))
    assert most == len(_there(driver.dsn))


def test_only_buckets_that_live_are_counted(
    driver: PostgresDriver, link: DatabaseLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a reader keeps from being dropped are nobody's who looks IDs up."""
    ((locks,),) = query(
        driver.dsn,
        "SELECT current_setting('max_locks_per_transaction')::integer * "
        "(current_setting('max_connections')::integer + "
        "current_setting('max_prepared_transactions')::integer)",
    )
    monkeypatch.setattr(seen_id_buckets, "_LOCKS_PER_BUCKET", locks // 2)
    buckets = _buckets(link)
    both = {HOUR: 1, 2 * HOUR: 1}
    with pytest.raises(ConfigurationError, match="TOO_MANY_BUCKETS"):
        buckets.create(both, live_from_us=HOUR * SECOND_US - 1, may_reject=False)
    buckets.create(both, live_from_us=HOUR * SECOND_US)
    assert ["0", str(HOUR), str(2 * HOUR)] == _there(driver.dsn)


def test_a_driver_counts_the_buckets_of_its_horizon(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the watermark has left behind by it is past."""
    wanted: list[int | None] = []

    def create(
        _: SeenIdBuckets, __: object, *, live_from_us: int | None, may_reject: bool
    ) -> None:
        assert may_reject, "this is no run"
        wanted.append(live_from_us)

    monkeypatch.setattr(SeenIdBuckets, "create", create)
    layout = replace(_LAYOUT, horizon_us=HOUR * SECOND_US)
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    for _ in range(2):
        plan = driver.plan(1)
        rows = {"output_0": driver.positioned(plan, [(1,)])}
        tally = driver.stage(plan, rows, event_time_max_us=5 * HOUR * SECOND_US)
        assert PublishOutcome.COMMITTED is driver.publish(plan, tally)
    assert [None, 4 * HOUR * SECOND_US] == wanted
