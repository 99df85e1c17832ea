"""Merging the seen-ID catalog on a real server: nothing that can be asked changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from integration_tests.harness.filed_ids import (
    HOUR,
    LAYOUT,
    FiledIds,
)
from integration_tests.harness.postgres_driver import (
    SECOND_US,
    query,
)
from tallyweir.services.resolver.merging import merge_catalogs
from tallyweir.sinks.faultpoints import MergePoint, Side, arm, disarm_all
from tallyweir.sinks.postgres.catalog import catalog_merge
from tallyweir.sinks.postgres.catalog.catalog_reader import PostgresRunSource
from tallyweir.sinks.postgres.schema.roles import PUBLISHER, grant_roles
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.seen_ids import chunk
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.tests.catalog import Never

_CHUNKS = load_statements("tallyweir.sinks.postgres.catalog", "chunks.sql")
_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")


@pytest.fixture
def world(
    home_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FiledIds]:
    """A pipeline whose newest batches are merged too, into small chunks."""
    monkeypatch.setattr(catalog_merge, "_MARGIN_BATCHES", 0)
    monkeypatch.setattr(chunk, "CHUNK_IDS", 64)
    monkeypatch.setattr(catalog_merge, "_IDS_AT_ONCE", 128)
    yield FiledIds(dsn=home_dsn, directory=tmp_path)
    disarm_all()


def test_closed_buckets_are_merged_and_every_batch_still_sees_what_it_saw(
    world: FiledIds,
) -> None:
    """The bucket at the watermark is left alone: more IDs are to come."""
    world.publish_hours(3)
    assert (18, 0, 0) == world.counts()
    assert [0, HOUR] == world.merge()
    assert (6, 16, 0) == world.counts()
    for through in (9, 6, 4, 1, 0):
        for is_idle in (False, True):
            world.check(world.view(through, is_idle=is_idle), through)
    world.check(world.view(live_from=HOUR), live_from=HOUR)
    assert [] == world.merge()


def test_the_newest_batches_are_not_merged(
    world: FiledIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them may be run again."""
    monkeypatch.setattr(catalog_merge, "_MARGIN_BATCHES", 5)
    world.publish_hours(3)
    assert [0, HOUR] == world.merge()
    newest = "SELECT bucket, max(sequence) FROM tallyweir.seen_id_run WHERE chunk >= 0 "
    assert [(0, 3), (HOUR, 4)] == query(world.dsn, newest + "GROUP BY 1 ORDER BY 1")
    for through in range(10):
        world.check(world.view(through), through)


def test_ids_that_come_late_stay_runs_until_there_are_enough(
    world: FiledIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the bucket is merged again, with all that it has."""
    monkeypatch.setattr(catalog_merge, "_IDS_PER_RUN", 0)
    monkeypatch.setattr(catalog_merge, "_LATE_IDS_KEPT", 1)
    world.publish_hours(2)
    assert [0] == world.merge()
    world.publish(0, ids=40)
    assert [] == world.merge()
    world.check(world.view())
    world.publish(0, ids=60)
    stale = world.view()
    assert [0] == world.merge()
    (oldest, newest, ids) = query(
        world.dsn,
        "SELECT min(oldest_sequence), max(sequence), sum(ids) "
        "FROM tallyweir.seen_id_run WHERE bucket = 0",
    )[0]
    assert (1, 8, 400) == (oldest, newest, ids)
    for through in range(9):
        world.check(world.view(through), through)
    world.check(stale)


@pytest.mark.parametrize(
    ("kept", "most", "merged"), [(1, 10**6, 4), (600, 10**6, 6), (1, 250, 3)]
)
def test_late_runs_count_by_what_they_cost_a_start(
    world: FiledIds,
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
    most: int,
    merged: int,
) -> None:
    """However many chunks there are, a few late IDs do not have them written again."""
    monkeypatch.setattr(catalog_merge, "_IDS_PER_RUN", 50)
    monkeypatch.setattr(catalog_merge, "_LATE_IDS_KEPT", kept)
    monkeypatch.setattr(catalog_merge, "_LATE_IDS_MAX", most)
    world.publish(0, ids=1_500)
    world.publish(HOUR)
    assert [0] == world.merge()
    for batch in range(1, merged + 1):
        # Two IDs in two runs count as 102, and a quarter of the chunks is 375.
        world.publish(0, ids=2)
        assert ([0] if batch == merged else []) == world.merge()
    world.check(world.view())


def test_an_open_bucket_is_merged_when_its_runs_would_delay_a_start(
    world: FiledIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again when they are half of its chunks, for a merge writes all of them."""
    monkeypatch.setattr(catalog_merge, "_OPEN_IDS_KEPT", 500)
    monkeypatch.setattr(catalog_merge, "_IDS_PER_RUN", 10)
    merged: list[int] = []
    for batch in range(1, 26):
        # A hundred IDs in two runs count as 120.
        world.publish(0)
        if world.merge():
            merged.append(batch)
            world.check(world.view())
    assert [5, 10, 15, 22] == merged
    for through in (25, 22, 21, 15, 1, 0):
        for is_idle in (False, True):
            world.check(world.view(through, is_idle=is_idle), through)


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("point", list(MergePoint))
def test_a_crash_at_any_point_of_a_merge_changes_nothing(
    world: FiledIds, point: MergePoint, side: Side
) -> None:
    """Either the runs are there or the chunks, and the next merge does the rest."""
    world.publish_hours(2)
    before = world.counts()

    class _DiedError(Exception):
        pass

    def die() -> None:
        raise _DiedError

    arm(point, die, side=side)
    with pytest.raises(_DiedError):
        world.merge()
    disarm_all()
    is_done = (point, side) == (MergePoint.RUNS_REPLACED, Side.AFTER)
    runs, chunks, hidden = world.counts()
    assert runs == (6 if is_done else before[0])
    assert bool(chunks) is is_done
    writes = (MergePoint.CHUNKS_WRITTEN, Side.BEFORE)
    assert bool(hidden) is (not is_done and (point, side) != writes)
    world.check(world.view())
    assert world.merge() == ([] if is_done else [0])
    assert (6, 8, 0) == world.counts()
    world.check(world.view())


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("point", list(MergePoint))
def test_batches_are_published_and_drivers_start_in_the_middle_of_a_merge(
    world: FiledIds, point: MergePoint, side: Side
) -> None:
    """Into its bucket and into new ones; nobody waits for it."""
    world.publish_hours(2)
    late = iter(range(2, 99))

    def publish() -> None:
        world.publish(0)
        world.publish(next(late) * HOUR)
        world.check(world.view())

    arm(point, publish, side=side)
    merged = world.merge()
    disarm_all()
    assert 0 in merged
    world.merge()
    assert not world.counts()[2]
    world.check(world.view())


def test_a_driver_that_starts_never_sees_half_of_a_merge(
    world: FiledIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters and runs are read in one snapshot, whatever ends between them."""
    world.publish_hours(2)
    read = PostgresRunSource._fetch_filters

    def merge_between(
        source: PostgresRunSource, *arguments: object
    ) -> Iterator[object]:
        yield from read(source, *arguments)  # type: ignore[arg-type]
        assert [0] == world.merge()

    monkeypatch.setattr(PostgresRunSource, "_fetch_filters", merge_between)
    world.check(world.view())


def _expects_overtaken(
    world: FiledIds, point: MergePoint, act: Callable[[], None]
) -> None:
    done: list[bool] = []

    def act_once() -> None:
        if not done:
            done.append(True)
            act()

    arm(point, act_once, side=Side.BEFORE)
    report = merge_catalogs(world.dsn)
    disarm_all()
    assert done
    assert ["MERGE_OVERTAKEN"] == report.failures
    assert not report.merged


@pytest.mark.parametrize("point", list(MergePoint))
def test_a_bucket_that_expires_while_it_is_merged_is_gone(
    world: FiledIds, point: MergePoint
) -> None:
    """The merge keeps nobody from dropping it, and leaves nothing."""
    world.publish_hours(3)
    tidy = world.driver.home.tidy
    _expects_overtaken(world, point, lambda: tidy(live_from_us=HOUR * SECOND_US))
    assert (12, 0, 0) == world.counts()
    world.check(world.view(live_from=HOUR), live_from=HOUR)
    assert [HOUR] == world.merge()


def test_a_bucket_that_was_merged_is_dropped_as_any_other(world: FiledIds) -> None:
    """Its chunks are in the same partition."""
    world.publish_hours(3)
    world.merge()
    world.driver.home.tidy(live_from_us=2 * HOUR * SECOND_US)
    assert (6, 0, 0) == world.counts()


def _forget(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(_PUBLISH["await_merge"], {"pipeline": LAYOUT.pipeline})
        connection.execute(_PUBLISH["forget_seen_ids"], {"pipeline": LAYOUT.pipeline})


@pytest.mark.parametrize("point", list(MergePoint))
def test_ids_that_are_forgotten_while_they_are_merged_do_not_come_back(
    world: FiledIds, point: MergePoint
) -> None:
    """As a batch run does that takes the place of all before it."""
    world.publish_hours(2)
    _expects_overtaken(world, point, lambda: _forget(world.dsn))
    assert 0 == sum(world.counts()[:2])


def test_who_forgets_waits_for_chunks_that_are_about_to_be_shown(
    world: FiledIds,
) -> None:
    """A DELETE does not see what is committed after it began."""
    world.publish_hours(2)
    waiting = threading.Event()
    with ThreadPoolExecutor(1) as other, psycopg.connect(world.dsn) as merging:

        def forget() -> None:
            waiting.set()
            _forget(world.dsn)

        values = {"pipeline_number": 1}
        merging.execute(_CHUNKS["await_forgetting"], values)
        forgetting = other.submit(forget)
        waiting.wait()
        _await_lock(world.dsn)
        merging.execute(
            "UPDATE tallyweir.seen_id_run SET sequence = sequence + 100 "
            "WHERE bucket = 0"
        )
        merging.commit()
        forgetting.result(timeout=30)
    assert (0, 0, 0) == world.counts()


def _await_lock(dsn: str) -> None:
    statement = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    while not query(dsn, statement):
        pass


def test_two_resolvers_do_not_merge_one_pipeline_at_once(world: FiledIds) -> None:
    """The second finds the lock of the first, and does nothing."""
    world.publish_hours(2)
    other: list[list[int]] = []
    arm(MergePoint.RUNS_REPLACED, lambda: other.append(world.merge()), side=Side.BEFORE)
    assert [0] == world.merge()
    assert [[]] == other


def _copied(server_dsn: str, dsn: str, name: str) -> str:
    source = conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(str(source))
            )
        )
    return make_conninfo(dsn, dbname=name)


def test_a_driver_whose_database_goes_back_to_before_a_merge_still_finds_every_id(
    world: FiledIds, server_dsn: str
) -> None:
    """What its filters let pass is looked up in the runs that are there again."""
    world.publish_hours(2)
    world.driver.home.close()
    name = f"before_{conninfo_to_dict(world.dsn)['dbname']}"
    before = _copied(server_dsn, world.dsn, name)
    try:
        world.merge()
        with connect(world.dsn, application_name="test") as connection:
            stored = [
                found
                for _, found in PostgresRunSource(connection, "numbers").fetch_runs(
                    after_sequence=-1, through_sequence=6, live_from_bucket=0
                )
            ]
        merged = FiledIds(dsn=before, directory=world.directory)
        merged.filed = world.filed
        merged.check(merged.view())
        chunks = stored[0]
        chunks.reader._dsn = before  # type: ignore[union-attr]
        copy = CatalogCopy(world.directory, Never())

        class _Fetched:
            def fetch_runs(self, **_: int) -> Iterator[tuple[int, object]]:
                return iter([(1, chunks)])

        view = copy.view(
            catalog=_Fetched(),  # type: ignore[arg-type]
            live_from_bucket=0,
            through_sequence=6,
        )
        for _, bucket, pairs in world.filed:
            hi, lo = np.array(sorted(pairs), dtype=np.uint64).T
            assert [bucket == 0] * len(pairs) == view.find(hi, lo).found.tolist()
        copy.close()
        merged.driver.home.close()
    finally:
        with psycopg.connect(server_dsn, autocommit=True) as server:
            server.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


def test_a_publisher_may_merge(world: FiledIds) -> None:
    """The resolver runs under that role."""
    grant_roles(world.dsn, HOME)
    world.publish_hours(2)
    dsn = make_conninfo(world.dsn, options=f"-c role={PUBLISHER}")
    report = merge_catalogs(dsn)
    assert not report.failures
    assert [0] == [merged.bucket for merged in report.merged]
