"""Runs a driver under measurement, and reads its batches from the ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import psycopg

from services.dev.bench.world.bench_world import BenchPipeline, incomplete_run
from services.process.endpoints import Endpoints, child_environment
from sinks.postgres.server.connection import connect
from sinks.postgres.server.databases import DATABASES_VARIABLE
from sinks.protocol.errors import FatalError

_POLL_S = 0.5
_END_TIMEOUT_S = 60.0
#: How much of the end of a driver's output to show; its error comes last.
_LAST_WORDS_BYTES = 2_000

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


@contextmanager
def running_driver(
    endpoints: Endpoints, pipeline: BenchPipeline
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a pipeline's driver; end it by SIGTERM after the block.

    Raises:
        FatalError: The error that the measurement raised. If the driver had already
            ended, the error includes the end of its output.
    """
    with tempfile.TemporaryFile() as words:
        driver = subprocess.Popen(
            [sys.executable, "-m", "spark_jobs", str(pipeline.file)],
            env=child_environment(endpoints)
            | {DATABASES_VARIABLE: json.dumps(dict(pipeline.databases))}
            | dict(pipeline.settings),
            stderr=words,
            start_new_session=True,
        )
        try:
            yield driver
            driver.send_signal(signal.SIGTERM)
            driver.wait(timeout=_END_TIMEOUT_S)
        except FatalError as error:
            if driver.poll() is None:
                raise
            raise incomplete_run(
                f"{error.saw} Its last words:\n{_end_of(words)}",
                fix="Correct what the driver complains of.",
            ) from error
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()


def _end_of(words: BinaryIO) -> str:
    words.seek(max(0, words.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
    return words.read().decode(errors="replace")


def await_claim(
    driver: subprocess.Popen[bytes],
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
        if driver.poll() is not None or time.monotonic() > deadline:
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
    driver: subprocess.Popen[bytes],
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
        if driver.poll() is not None or time.monotonic() > deadline:
            raise incomplete_run(
                f"The ledger holds {seen} of {events} events; the driver "
                f"{'ended' if driver.poll() is not None else 'still runs'}.",
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
