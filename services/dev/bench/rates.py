"""Events per second of a run's first round and of its last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.dev.bench.bench_world import (
    PAGE_VIEWS,
    TOPIC,
    BenchPipeline,
    count_rows,
    drop_table,
    run_timeout_s,
    varied,
)
from services.dev.bench.driver_run import MeasuredBatch, await_events, running_driver
from services.process.endpoints import Endpoints
from sinks.postgres.audit import verify
from sinks.postgres.server.connection import connect
from sinks.protocol.errors import FatalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events per second, by a cold JVM and by a warm one."""

    cold: float
    warm: float

    def figures(self) -> dict[str, object]:
        """Give both, rounded."""
        return {
            "events_per_second": round(self.warm),
            "cold_events_per_second": round(self.cold),
        }

    def beside(self, peer: Rates, name: str) -> dict[str, object]:
        """Give the figures of both, with their ratios."""
        return {
            **self.figures(),
            "peer": name,
            "peer_events_per_second": round(peer.warm),
            "peer_cold_events_per_second": round(peer.cold),
            "ratio": round(self.warm / peer.warm, 2),
            "cold_ratio": round(self.cold / peer.cold, 2),
        }

    def __str__(self) -> str:
        return f"cold {self.cold:,.0f}, warm {self.warm:,.0f} events/s"


def rates_of(
    batches: Sequence[MeasuredBatch], events: int, *, rounds: int = 2
) -> Rates:
    """Compute the rates of the first round of ``events`` and of the last.

    The cold rate counts from the planning of the first batch. The warm rate counts
    the batches that lie wholly in the last round, from the end of the batch before.
    """
    assert rounds > 1, "a warm round comes after a cold one"
    first_warm = _batches_until(batches, (rounds - 1) * events)
    cold = batches[: _batches_until(batches, events)]
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
    """Count the batches that bring the first ``events``."""
    done = 0
    for number, batch in enumerate(batches):
        if done >= events:
            return number
        done += batch.read
    return len(batches)


def measure_driver(
    endpoints: Endpoints, pipeline: BenchPipeline, *, events: int, rounds: int = 2
) -> Rates:
    """Run a driver over the topic's rounds of ``events`` each.

    Raises:
        FatalError: The run did not end.
    """
    total = rounds * events
    with running_driver(endpoints, pipeline) as driver:
        batches = await_events(
            driver,
            endpoints.home_dsn,
            pipeline,
            events=total,
            timeout_s=run_timeout_s(total),
        )
    return rates_of(batches, events, rounds=rounds)


def warm_up(
    endpoints: Endpoints,
    *,
    events: int,
    say: Callable[[str], None],
    topic: str = TOPIC,
) -> None:
    """Run a driver over a topic's events once, unmeasured, and take its table away.

    What servers and the system do for the first time would be counted against whoever
    is measured first, which is ours. The broker's code is compiled, Postgres fills each
    file of its log with zeros before it writes into it, and memory that nobody has
    touched is slow to come by. A driver is a process of its own in each run.

    Raises:
        FatalError: The run did not end.
    """
    say("warming up broker and database")
    rehearsal = varied(PAGE_VIEWS, "rehearsal", topic=topic)
    with running_driver(endpoints, rehearsal) as driver:
        await_events(
            driver,
            endpoints.home_dsn,
            rehearsal,
            events=events,
            timeout_s=run_timeout_s(events),
        )
    drop_table(endpoints.home_dsn, rehearsal.table)


def check_verified(dsn: str, pipeline: BenchPipeline) -> None:
    """Let the product's own audit look at what was measured.

    Raises:
        FatalError: It finds something.
    """
    with connect(dsn, application_name="bench") as connection:
        receipt = verify(connection, pipeline.name, pipeline.databases)
    if receipt.failed:
        raise wrong_result(f"verify failed: {receipt.failed}.")


def check_rows(endpoints: Endpoints, pipeline: BenchPipeline, distinct: int) -> None:
    """Count the rows, wherever they are: a fast wrong answer is no answer.

    Raises:
        FatalError: They are not as many as the events that differ.
    """
    rows = count_rows(endpoints, pipeline)
    if rows != distinct:
        raise wrong_result(f"{pipeline.table} holds {rows} rows for {distinct} events.")


def wrong_result(saw: str) -> FatalError:
    """Say that there is no figure, since what was measured is not right."""
    return FatalError(
        "BENCH_WRONG",
        saw=saw,
        why="The rate of a wrong result means nothing.",
        fix="Report this with the seed.",
    )
