"""Lends one pipeline the seen IDs of another, as if it had seen them before it began.

They become IDs of batch 0, which no pipeline has: so its driver finds them, as it finds
those of any batch before its own, and they can be told from what its batches add.

Chunks say that they hold all that their bucket has of batches through one. So no bucket
may be lent that has runs beside its chunks: they would be of one batch, and a
driver that reads the chunks would find more in them than was there, and start over.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from services.dev.bench.rates import wrong_result
from sinks.postgres.catalog.catalog_merge import merge_next_bucket, read_mergeable
from sinks.postgres.server.connection import connect
from sinks.postgres.server.statements import load_statements

_SQL = load_statements("services.dev.bench", "lent_ids.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledBucket:
    """A bucket of a catalog: its IDs, and how many rows of which kind have them."""

    bucket: int
    ids: int
    chunks: int
    runs: int


def read_buckets(dsn: str, pipeline: str) -> list[FilledBucket]:
    """List the buckets of a pipeline's catalog, the oldest first."""
    with connect(dsn, application_name="bench") as connection:
        rows = connection.execute(_SQL["buckets"], {"pipeline": pipeline})
        return [
            FilledBucket(bucket=bucket, ids=ids, chunks=chunks, runs=runs)
            for bucket, ids, chunks, runs in rows
        ]


def merge_all(dsn: str, pipeline: str) -> None:
    """Merge the buckets of a pipeline that are due, and leave no newer batch alone.

    The resolver leaves the two newest, for the sake of a driver that starts; here none
    does, and what has no batch of its own afterwards cannot stay beside chunks.
    """
    with connect(dsn, application_name="bench") as connection:
        newest = _one(connection, "last_sequence", pipeline=pipeline)
    for one in read_mergeable(dsn):
        if one.name == pipeline:
            through_newest = replace(one, through_sequence=newest)
            while merge_next_bucket(dsn, through_newest, Path(tempfile.gettempdir())):
                pass


def lend(dsn: str, *, lender: str, borrower: str) -> None:
    """Copy all IDs of a pipeline to another one, which has none yet.

    No driver of either runs. Both have buckets of one length.

    Raises:
        FatalError: ``BENCH_WRONG``: a bucket has runs beside its chunks.
    """
    with connect(dsn, application_name="bench") as connection:
        number = _one(connection, "pipeline_number", pipeline=borrower)
        for one in read_buckets(dsn, lender):
            if one.chunks and one.runs:
                raise wrong_result(f"A bucket has {one.runs} runs beside its chunks.")
            values = {"lender": lender, "borrower": borrower, "bucket": one.bucket}
            connection.execute(
                _SQL["create_bucket"], {**values, "pipeline_number": number}
            )
            connection.execute(_SQL["lend"], values)


def count_lent(dsn: str, pipeline: str) -> int:
    """Count the IDs that a pipeline was lent and still has."""
    with connect(dsn, application_name="bench") as connection:
        return _one(connection, "lent", pipeline=pipeline)


def take_back(dsn: str, pipeline: str) -> None:
    """Remove the IDs that a pipeline was lent, and no other."""
    with connect(dsn, application_name="bench") as connection:
        connection.execute(_SQL["take_back"], {"pipeline": pipeline})


def _one(
    connection: psycopg.Connection[TupleRow], statement: str, **values: object
) -> int:
    row = connection.execute(_SQL[statement], values).fetchone()
    assert row is not None, "the home knows the pipeline"
    return int(row[0])
