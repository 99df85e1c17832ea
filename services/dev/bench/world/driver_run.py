"""Runs a driver under measurement, and reads its batches from the ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import psycopg

from tallyweir.services.dev.bench.world.bench_world import BenchPipeline, incomplete_run
from tallyweir.services.process.driver_process import DriverProcess
from tallyweir.services.process.endpoints import Endpoints, child_environment
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE
from tallyweir.sinks.protocol.errors import FatalError

_POLL_S = 0.5

_BATCHES = """
SELECT planned_at, published_at, read
FROM tallyweir.batch
JOIN (
    SELECT pipeline, sequence, sum(read) AS read
    FROM tallyweir.batch_partition
    GROUP BY pipeline, sequence
) AS counted USING (pipeline, sequence)
WHERE pipeline = %s
ORDER BY sequence
"""
_CLAIM = "SELECT epoch FROM tallyweir.epoch_claim WHERE pipeline = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBatch:
    """When a batch was planned and published, by the database's clock."""

    planned_at: float
    published_at: float
    read: int


class _MeasuredDriver(DriverProcess):
    """A driver that writes as many lines as one of a user."""

    log_level: ClassVar[str] = "info"


@contextmanager
def running_driver(
    endpoints: Endpoints, pipeline: BenchPipeline
) -> Iterator[DriverProcess]:
    """Run a pipeline's driver; drain it after the block.

    Raises:
        FatalError: The error that the measurement raised. If the driver had already
            ended, the error includes the end of its output. Or the driver did not
            drain well.
    """
    environment = (
        child_environment(endpoints)
        | {DATABASES_VARIABLE: json.dumps(dict(pipeline.databases))}
        | dict(pipeline.settings)
    )
    with _MeasuredDriver(pipeline.file, environment) as driver:
        try:
            yield driver
        except FatalError as error:
            if driver.exit_code is None:
                raise
            raise incomplete_run(
                f"{error.saw} {driver.failure('has ended').saw}",
                fix="Correct the error that the driver reports.",
            ) from error
        driver.drain()


def await_claim(
    driver: DriverProcess,
    dsn: str,
    pipeline: BenchPipeline,
    *,
    timeout_s: float,
) -> None:
    """Wait until a pipeline has claimed its first epoch: then the home knows it.

    Raises:
        FatalError: The driver ended, or claimed no epoch in time.
    """
    deadline = time.monotonic() + timeout_s
    while not _is_claimed(dsn, pipeline):
        if driver.exit_code is not None or time.monotonic() > deadline:
            raise incomplete_run(
                f"{pipeline.name} has claimed no epoch.",
                fix="Run the pipeline by hand to see its messages.",
            )
        time.sleep(_POLL_S)


def _is_claimed(dsn: str, pipeline: BenchPipeline) -> bool:
    with connect(dsn, application_name="bench") as connection:
        try:
            claim = connection.execute(_CLAIM, (pipeline.name,)).fetchone()
        except psycopg.errors.UndefinedTable:
            return False
    return claim is not None


def await_events(
    driver: DriverProcess,
    dsn: str,
    pipeline: BenchPipeline,
    *,
    events: int,
    timeout_s: float,
) -> list[MeasuredBatch]:
    """Wait until the ledger counts ``events``; return all batches so far.

    Raises:
        FatalError: The driver ended, or did not read the events in time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        batches = read_batches(dsn, pipeline)
        seen = sum(batch.read for batch in batches)
        if seen >= events:
            return batches
        if driver.exit_code is not None or time.monotonic() > deadline:
            raise incomplete_run(
                f"The ledger holds {seen} of {events} events; the driver "
                f"{'ended' if driver.exit_code is not None else 'still runs'}.",
                fix="Run the pipeline by hand to see its messages.",
            )
        time.sleep(_POLL_S)


def read_batches(dsn: str, pipeline: BenchPipeline) -> list[MeasuredBatch]:
    """Read a pipeline's batches from the ledger; empty if there is no ledger yet."""
    with connect(dsn, application_name="bench") as connection:
        try:
            rows = connection.execute(_BATCHES, (pipeline.name,)).fetchall()
        except psycopg.errors.UndefinedTable:
            return []
    return [
        MeasuredBatch(
            planned_at=planned_at.timestamp(),
            published_at=published_at.timestamp(),
            read=int(read),
        )
        for planned_at, published_at, read in rows
    ]
