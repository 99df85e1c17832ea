"""Lends one pipeline the seen IDs of another, as if it had seen them before it began.

The IDs get batch 0, which no pipeline has. The borrower's driver finds them as it finds
the IDs of any earlier batch, and they differ from the IDs that its own batches add.

Chunks claim to hold all IDs that their bucket has of the batches up to a certain one. A
bucket that has runs as well as chunks must therefore not be lent: runs and chunks would
be of the same batch, and a driver that reads the chunks would find more in them than
was there, and start over.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from tallyweir.services.dev.bench.world.driver_run import wrong_result
from tallyweir.sinks.postgres.catalog.catalog_merge import (
    merge_next_bucket,
    read_mergeable,
)
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.services.dev.bench.catalog", "lent_ids.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledBucket:
    """A bucket of a catalog: how many IDs, chunks and runs it has."""

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
    """Merge the buckets of a pipeline that are due, including the newest batches.

    The resolver leaves out the two newest batches for a driver that starts. Here no
    driver starts. Lending takes away the batch of each run, so no run may stay next to
    chunks.
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

    No driver of either pipeline may run. Both must have buckets of the same length.

    Raises:
        FatalError: ``BENCH_WRONG``: a bucket has runs as well as chunks.
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
    """Remove the IDs that a pipeline was lent, and no others."""
    with connect(dsn, application_name="bench") as connection:
        connection.execute(_SQL["take_back"], {"pipeline": pipeline})


def _one(
    connection: psycopg.Connection[TupleRow], statement: str, **values: object
) -> int:
    row = connection.execute(_SQL[statement], values).fetchone()
    assert row is not None, "the home knows the pipeline"
    return int(row[0])
