"""Runs a driver under measurement: its batches, its rates, and whether it is right."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import psycopg
from psycopg import sql

from tallyweir.services.dev.bench.world.bench_world import (
    PAGE_VIEWS,
    TOPIC,
    BenchPipeline,
    Rounds,
    drop_table,
    incomplete_run,
    run_timeout_s,
    varied,
)
from tallyweir.services.process.driver_process import SILENCE_MAX_S, DriverProcess
from tallyweir.services.process.endpoints import Endpoints, child_environment
from tallyweir.sinks.postgres.audit import verify
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
_COUNT_ROWS = sql.SQL("SELECT count(*) FROM {}")
_COUNT_IDS = sql.SQL("SELECT count(DISTINCT event_id) FROM {}")


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


def await_start(driver: DriverProcess) -> None:
    """Wait until a driver has claimed its epoch: then the home knows its pipeline.

    Raises:
        FatalError: The driver ended, or said nothing for long.
    """
    while event := driver.next_event(SILENCE_MAX_S):
        if event["event"] == "driver started":
            return
    raise driver.failure("has not started")


def await_events(
    driver: DriverProcess, dsn: str, pipeline: BenchPipeline, *, events: int
) -> list[MeasuredBatch]:
    """Wait until the ledger counts ``events``; return all batches so far.

    Raises:
        FatalError: The driver ended, or did not read the events in time.
    """
    deadline = time.monotonic() + run_timeout_s(events)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events per second with a cold JVM and with a warm one."""

    cold: float
    warm: float

    def figures(self) -> dict[str, float]:
        """Return both rates, rounded."""
        return {
            "events_per_second": round(self.warm),
            "cold_events_per_second": round(self.cold),
        }

    def __str__(self) -> str:
        return f"cold {self.cold:,.0f}, warm {self.warm:,.0f} events/s"


def median_rates(runs: Sequence[Rates]) -> Rates:
    """Return the median of the cold rates, and that of the warm ones."""
    return Rates(
        cold=median(one.cold for one in runs), warm=median(one.warm for one in runs)
    )


def rates_of(batches: Sequence[MeasuredBatch], rounds: Rounds) -> Rates:
    """Compute the rates of the first round and of the last.

    The cold rate begins with the planning of the first batch. The warm rate covers the
    batches that lie wholly in the last round, from the end of the batch before them.
    """
    assert rounds.count > 1, "a warm round comes after a cold one"
    first_warm = _batches_until(batches, rounds.total - rounds.events)
    cold = batches[: _batches_until(batches, rounds.events)]
    warm = batches[first_warm:]
    assert cold, "the first round was measured"
    assert warm, "the last round was measured"
    cold_seconds = cold[-1].published_at - cold[0].planned_at
    warm_seconds = warm[-1].published_at - batches[first_warm - 1].published_at
    return Rates(
        cold=sum(batch.read for batch in cold) / cold_seconds,
        warm=sum(batch.read for batch in warm) / warm_seconds,
    )


def _batches_until(batches: Sequence[MeasuredBatch], events: int) -> int:
    """Count the batches that contain the first ``events``."""
    done = 0
    for number, batch in enumerate(batches):
        if done >= events:
            return number
        done += batch.read
    return len(batches)


def run_driver(
    rounds: Rounds,
    pipeline: BenchPipeline,
    *,
    looks: int = 1,
    look: Callable[[], None] = lambda: None,
) -> list[MeasuredBatch]:
    """Run a driver over the rounds, and ``look`` after equal parts of the events.

    Raises:
        FatalError: The run did not end.
    """
    dsn = rounds.endpoints.home_dsn
    with running_driver(rounds.endpoints, pipeline) as driver:
        for part in range(1, looks + 1):
            until = part * rounds.total // looks
            batches = await_events(driver, dsn, pipeline, events=until)
            look()
    return batches


def measure_table(rounds: Rounds, pipeline: BenchPipeline, *, rows: int) -> Rates:
    """Measure a driver, check its table, which has so many rows, and drop it.

    Raises:
        FatalError: The run did not end, or the table holds the wrong rows.
    """
    rates = rates_of(run_driver(rounds, pipeline), rounds)
    dsn = rounds.endpoints.home_dsn
    check_rows([dsn], pipeline.table, rows=rows, distinct=rounds.distinct)
    check_verified(dsn, pipeline)
    drop_table(dsn, pipeline.table)
    return rates


def warm_up(
    endpoints: Endpoints,
    *,
    events: int,
    say: Callable[[str], None],
    topic: str = TOPIC,
) -> None:
    """Run a driver over a topic's events once, unmeasured, and drop its table.

    Servers and system do some work only once, and it would count against the first
    run that is measured, which is Tallyweir's. The broker's JVM compiles code, Postgres
    fills each new file of its log with zeros before it writes into it, and the system
    is slow to provide memory that was not used before. The warm-up does not warm a
    driver, because each run starts a driver process of its own.

    Raises:
        FatalError: The run did not end.
    """
    say("warming up broker and database")
    rehearsal = varied(PAGE_VIEWS, "rehearsal", topic=topic)
    with running_driver(endpoints, rehearsal) as driver:
        await_events(driver, endpoints.home_dsn, rehearsal, events=events)
    drop_table(endpoints.home_dsn, rehearsal.table)


def check_verified(dsn: str, pipeline: BenchPipeline) -> None:
    """Check the measured pipeline by ``verify``.

    Raises:
        FatalError: ``verify`` finds a problem.
    """
    with connect(dsn, application_name="bench") as connection:
        receipt = verify(connection, pipeline.name, pipeline.databases)
    if receipt.failed:
        raise wrong_result(f"verify failed: {receipt.failed}.")


def check_rows(
    dsns: Sequence[str], table: str, *, rows: int, distinct: int | None = None
) -> None:
    """Check how many rows a table has in all databases together.

    Args:
        dsns: The databases, in each of which an event may have its row.
        table: The table.
        rows: How many rows it must have.
        distinct: How many distinct IDs it must have; None leaves them uncounted, which
            takes long in a large table.

    Raises:
        FatalError: It has another number of them: a fast wrong answer is no answer.
    """
    found = _count(_COUNT_ROWS, dsns, table)
    if found != rows:
        raise wrong_result(f"{table} holds {found} rows instead of {rows}.")
    if distinct is None:
        return
    found = _count(_COUNT_IDS, dsns, table)
    if found != distinct:
        raise wrong_result(f"{table} holds {found} distinct IDs instead of {distinct}.")


def _count(statement: sql.SQL, dsns: Sequence[str], table: str) -> int:
    counted = 0
    for dsn in dsns:
        with connect(dsn, application_name="bench") as connection:
            rows = connection.execute(statement.format(sql.Identifier(table)))
            counted += sum(number for (number,) in rows)
    return counted


def wrong_result(saw: str) -> FatalError:
    """Build the error for a run with a wrong result, which has no figure."""
    return FatalError(
        "BENCH_WRONG",
        saw=saw,
        why="The rate of a wrong result is meaningless.",
        fix="Report this with the seed.",
    )
