"""What the long benchmarks do to a home beside its driver, on a real server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.filed_ids import HOUR, LAYOUT, FiledIds
from integration_tests.harness.postgres_driver import (
    PIPELINE,
    PostgresDriver,
    append_table,
    execute,
    query,
)
from tallyweir.services.dev.bench.catalog.lent_ids import (
    count_lent,
    lend,
    merge_all,
    read_buckets,
    take_back,
)
from tallyweir.services.dev.bench.soak.soak_world import RowParts
from tallyweir.services.dev.bench.world.bench_world import BenchPipeline
from tallyweir.sinks.postgres.catalog import catalog_merge
from tallyweir.sinks.postgres.catalog.catalog_reader import PostgresRunSource
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.seen_ids import chunk
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.tests.catalog import Never

_BORROWER = "borrower"


@pytest.fixture
def world(home_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FiledIds:
    """A pipeline that files IDs, and whose closed buckets are merged at once."""
    monkeypatch.setattr(catalog_merge, "_MARGIN_BATCHES", 0)
    monkeypatch.setattr(chunk, "CHUNK_IDS", 64)
    return FiledIds(dsn=home_dsn, directory=tmp_path)


def _beside(pipeline: str) -> PipelineLayout:
    """Describe another pipeline, with a table of its own."""
    outputs = (append_table(pipeline, number="bigint"),)
    return replace(LAYOUT, pipeline=pipeline, outputs=outputs)


def test_a_driver_finds_the_ids_that_its_pipeline_was_lent(
    world: FiledIds, tmp_path: Path
) -> None:
    """Runs and chunks, with their payloads' hashes, before its first batch."""
    PostgresDriver(dsn=world.dsn, layout=_beside(_BORROWER))
    world.publish_hours(3)
    world.merge()
    lent = read_buckets(world.dsn, PIPELINE)

    lend(world.dsn, lender=PIPELINE, borrower=_BORROWER)

    assert [0, HOUR, 2 * HOUR] == [one.bucket for one in lent]
    assert [True, True, False] == [one.chunks > 0 for one in lent]
    assert [300] * 3 == [one.ids for one in lent]
    assert lent == read_buckets(world.dsn, _BORROWER)
    assert lent == read_buckets(world.dsn, PIPELINE)
    with connect(world.dsn, application_name="test") as connection:
        view = CatalogCopy(tmp_path, Never()).view(
            catalog=PostgresRunSource(connection, _BORROWER),
            live_from_bucket=0,
            through_sequence=0,
        )
        world.check(view)


def test_a_bucket_with_runs_beside_its_chunks_is_not_lent(
    world: FiledIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All would be of batch 0: chunks with fewer IDs than are found when fetched."""
    PostgresDriver(dsn=world.dsn, layout=_beside(_BORROWER))
    monkeypatch.setattr(catalog_merge, "_MARGIN_BATCHES", 2)
    monkeypatch.setattr(catalog_merge, "_OPEN_IDS_KEPT", 1)
    world.publish_hours(1)
    world.merge()
    with pytest.raises(FatalError, match="4 runs beside its chunks"):
        lend(world.dsn, lender=PIPELINE, borrower=_BORROWER)
    assert [] == read_buckets(world.dsn, _BORROWER)

    world.publish(0)
    merge_all(world.dsn, PIPELINE)
    lend(world.dsn, lender=PIPELINE, borrower=_BORROWER)

    (lent,) = read_buckets(world.dsn, _BORROWER)
    assert (400, 0) == (lent.ids, lent.runs)


def test_what_was_lent_is_taken_back_and_what_batches_have_added_stays(
    world: FiledIds,
) -> None:
    """So that verify can count what batches have added."""
    lender = PostgresDriver(dsn=world.dsn, layout=_beside("lender"))
    lender.home.close()
    world.publish_hours(2)
    lend(world.dsn, lender=PIPELINE, borrower="lender")
    # What is lent comes to a pipeline that has batches, but not these IDs any more.
    drop = "SELECT tallyweir.drop_bucket(pipeline_number, {}) FROM tallyweir.pipeline "
    for bucket in (0, HOUR):
        execute(world.dsn, f"{drop.format(bucket)} WHERE pipeline = '{PIPELINE}'")
    lend(world.dsn, lender="lender", borrower=PIPELINE)
    world.publish(2 * HOUR)
    assert 600 == count_lent(world.dsn, PIPELINE)

    take_back(world.dsn, PIPELINE)

    assert 0 == count_lent(world.dsn, PIPELINE)
    left = read_buckets(world.dsn, PIPELINE)
    assert [(2 * HOUR, 100)] == [(one.bucket, one.ids) for one in left]


def _parts(world: FiledIds, *, rows_per_part: int) -> RowParts:
    pipeline = BenchPipeline(name=PIPELINE, file=Path("none"), table="numbers")
    return RowParts(world.dsn, pipeline, rows_per_part=rows_per_part)


def _rows(dsn: str) -> int:
    ((rows,),) = query(dsn, "SELECT count(*) FROM numbers")
    return int(rows)


def test_rows_are_dropped_once_they_are_a_part_and_a_driver_writes_on(
    world: FiledIds,
) -> None:
    """All of them have been counted at the end."""
    parts = _parts(world, rows_per_part=3)
    for batch in range(1, 6):
        world.publish(0)
        parts.drop_some(batch)
        assert batch % 3 == _rows(world.dsn)
    parts.drop_all()
    assert (5, 0) == (parts.rows, _rows(world.dsn))


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM numbers WHERE kafka_offset = 1",
        "INSERT INTO numbers (TABLE numbers LIMIT 1)",
        "UPDATE numbers SET kafka_offset = 2 WHERE kafka_offset = 1",
    ],
)
def test_a_part_with_other_rows_than_its_batches_have_leaves_no_figure(
    world: FiledIds, damage: str
) -> None:
    """A row is missing, one is there twice, and one is another's."""
    parts = _parts(world, rows_per_part=1)
    for _ in range(3):
        world.publish(0)
    with psycopg.connect(world.dsn) as connection:
        connection.execute(damage.encode())
    with pytest.raises(FatalError, match="BENCH_WRONG"):
        parts.drop_all()
