"""What is emptied of staging, and what is left as it is."""

from __future__ import annotations

import pytest
from psycopg import sql

from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    layout_of,
    query,
)
from tallyweir.sinks.postgres.catalog.seen_id_buckets import SeenIdBuckets
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import STAGING_SETS, application_name
from tallyweir.sinks.protocol.errors import RetryableError

_LAYOUT = layout_of(append_table("numbers", number="bigint"))
#: A table that is emptied gets another one.
_FILES = """
SELECT relname, relfilenode
FROM pg_class
WHERE relname LIKE %s
ORDER BY relname
"""


def _files(dsn: str, table: str) -> list[tuple[str, int]]:
    found = query(dsn, _FILES, f"{table}._")
    assert len(found) == STAGING_SETS
    return found


def test_only_tables_with_rows_are_emptied(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most tables of a set are empty, and new files for them cost as much."""
    monkeypatch.setattr(
        "tallyweir.sinks.postgres.staging.staging_tables.STAGED_ROWS_KEPT", 2
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    empty, attempts = _files(home_dsn, "dead_letter"), _files(home_dsn, "attempt")
    filled = _files(home_dsn, "output_0")
    driver.append([(1,), (2,)])
    driver.home.tidy(live_from_us=None)
    assert empty == _files(home_dsn, "dead_letter")
    emptied = driver.sequence % STAGING_SETS
    for before, table in ((filled, "output_0"), (attempts, "attempt")):
        after = _files(home_dsn, table)
        changed = [one != other for one, other in zip(before, after, strict=True)]
        assert [number == emptied for number in range(STAGING_SETS)] == changed


def test_a_set_that_was_not_emptied_in_its_turn_is_left_to_the_batch_in_it(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch is staged there while the one before it is published."""
    monkeypatch.setattr(
        "tallyweir.sinks.postgres.staging.staging_tables.STAGED_ROWS_KEPT", 2
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    filled = _files(home_dsn, "output_0")
    # Somebody's lock kept it from being emptied.
    driver.append([(1,), (2,)])
    skipped = driver.sequence % STAGING_SETS
    driver.append([(3,), (4,)])
    driver.home.tidy(live_from_us=None)
    assert filled[skipped] == _files(home_dsn, "output_0")[skipped]
    driver.append([(5,)])
    driver.home.tidy(live_from_us=None)
    assert filled[skipped] != _files(home_dsn, "output_0")[skipped]


def test_staging_is_emptied_though_a_bucket_cannot_be_dropped(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of the catalog may take an hour."""
    monkeypatch.setattr(
        "tallyweir.sinks.postgres.staging.staging_tables.STAGED_ROWS_KEPT", 2
    )

    def fail(*_: object) -> None:
        raise RetryableError("POSTGRES_UNAVAILABLE", saw="-", why="-", fix="-")

    monkeypatch.setattr(SeenIdBuckets, "drop_before", fail)
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    filled = _files(home_dsn, "output_0")
    driver.append([(1,), (2,)])
    driver.home.tidy(live_from_us=0)
    assert filled != _files(home_dsn, "output_0")


def test_staging_that_somebody_reads_is_emptied_later(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one who reads all of a database does, for long; the session is kept."""
    monkeypatch.setattr(
        "tallyweir.sinks.postgres.staging.staging_tables.STAGED_ROWS_KEPT", 2
    )
    monkeypatch.setattr("tallyweir.sinks.postgres.server.locks.RESPITE_S", 0.0)
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append([(1,), (2,)])
    backends = "SELECT pid FROM pg_stat_activity WHERE application_name = %s ORDER BY 1"
    name = application_name(driver.home.claim.pipeline_number, driver.epoch)
    before = _files(home_dsn, "output_0"), query(home_dsn, backends, name)
    staged = driver.staging_table("output_0")
    with connect(home_dsn, application_name="test reader") as reader:
        reader.execute(sql.SQL("SELECT FROM {}").format(staged))
        driver.home.tidy(live_from_us=None)
        after = _files(home_dsn, "output_0"), query(home_dsn, backends, name)
        assert before == after
    driver.home.tidy(live_from_us=None)
    assert before[0] != _files(home_dsn, "output_0")
