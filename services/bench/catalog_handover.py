"""Hands seen IDs from one pipeline to another, as if it had seen them before it began.

They become IDs of batch 0, which no pipeline has: so its driver finds them, as it finds
those of any batch before its own, and they can be told from what its batches add.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.statements import load_statements

_SQL = load_statements("services.bench", "full_catalog.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledBucket:
    """A bucket of a catalog, and whether it was merged into chunks."""

    bucket: int
    ids: int
    is_merged: bool


def read_buckets(dsn: str, pipeline: str) -> list[FilledBucket]:
    """List the buckets of a pipeline's catalog, the oldest first."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(_SQL["buckets"], {"pipeline": pipeline})
        return [
            FilledBucket(bucket=bucket, ids=ids, is_merged=chunks > 0)
            for bucket, ids, chunks in rows
        ]


def hand_over(
    dsn: str, *, giver: str, receiver: str, say: Callable[[str], None]
) -> None:
    """Move all IDs of a pipeline to another one, a bucket at a time.

    No driver of either runs. Both have buckets of one length.

    Crash:
        Each bucket is with one of the two.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        giving = _number_of(connection, giver)
        receiving = _number_of(connection, receiver)
        for one in read_buckets(dsn, giver):
            say(f"handing over {one.ids:,} IDs of a bucket")
            values = {"giver": giver, "receiver": receiver, "bucket": one.bucket}
            with connection.transaction():
                connection.execute(
                    _SQL["create_bucket"], {**values, "pipeline_number": receiving}
                )
                connection.execute(_SQL["hand_over"], values)
                connection.execute(
                    _SQL["drop_bucket"], {**values, "pipeline_number": giving}
                )


def count_handed_over(dsn: str, pipeline: str) -> int:
    """Count the IDs that a pipeline was given and still has."""
    with psycopg.connect(dsn) as connection:
        return _one(connection, "handed_over", pipeline=pipeline)


def take_back(dsn: str, pipeline: str) -> None:
    """Remove the IDs that a pipeline was given, and no other."""
    with psycopg.connect(dsn) as connection:
        connection.execute(_SQL["take_back"], {"pipeline": pipeline})


def _number_of(connection: psycopg.Connection[TupleRow], pipeline: str) -> int:
    return _one(connection, "pipeline_number", pipeline=pipeline)


def _one(
    connection: psycopg.Connection[TupleRow], statement: str, **values: object
) -> int:
    row = connection.execute(_SQL[statement], values).fetchone()
    assert row is not None, "the home knows the pipeline"
    return int(row[0])
