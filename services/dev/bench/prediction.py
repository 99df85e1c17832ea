"""What a cluster should do, from what one machine was measured to do.

The formula, what it leaves out, and how far to believe it are in docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

NODES = (1, 2, 4, 8, 16)

FORMULA = (
    "events_per_second(N) = min(events_per_batch / (serial_seconds + "
    "staging_seconds * spark_share / N), postgres_limit, broker_limit)"
)
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What was measured on one machine that held everything.

    Attributes:
        events_per_batch: On average.
        serial_seconds: Of a batch outside of staging, when one process works and no
            node helps: planning, the transaction that publishes, and Spark between.
        staging_seconds: Of a batch in staging, when all tasks work.
        spark_share: How much of the processor time of staging was Spark's and its
            Python's, so that nodes for Spark divide it.
        postgres_limit: Events per second of a Postgres on such a machine of its own.
        broker_limit: The same of a Kafka broker.
    """

    events_per_batch: int
    serial_seconds: float
    staging_seconds: float
    spark_share: float
    postgres_limit: int
    broker_limit: int


def constants_of(
    events_per_second: float, cost: Mapping[str, Any], *, cores: int
) -> Constants:
    """Take the constants from a warm round and what an event cost in it.

    Args:
        events_per_second: Of the round.
        cost: As ``services.dev.bench.cost.cost_between`` returns it.
        cores: Of the machine.
    """
    events = cost["events_per_batch"]
    staging_s, publish_s = (
        cost["seconds_per_batch"][phase] for phase in ("stage", "publish")
    )
    cpu_us = cost["cpu_seconds_per_million"]
    spark = cpu_us["jvm"] + cpu_us["python"]
    # One connection publishes, on one core; the rest of Postgres' work is staging.
    copying = max(0.0, cpu_us["postgres"] - publish_s * _MILLION / events)
    return Constants(
        events_per_batch=events,
        serial_seconds=round(max(0.0, events / events_per_second - staging_s), 3),
        staging_seconds=staging_s,
        spark_share=round(spark / (spark + copying + cpu_us["broker"]), 3),
        postgres_limit=round(cores * _MILLION / cpu_us["postgres"]),
        broker_limit=round(cores * _MILLION / cpu_us["broker"]),
    )


def predict(constants: Constants, nodes: Sequence[int] = NODES) -> dict[str, object]:
    """Predict the rate of clusters: so many nodes for Spark, and one for each server.

    Every node is like the machine that was measured.
    """
    serial_limit = (
        round(constants.events_per_batch / constants.serial_seconds)
        if constants.serial_seconds
        else None
    )
    return {
        "formula": FORMULA,
        "constants": asdict(constants),
        "serial_limit": serial_limit,
        "nodes": [_rate_of(constants, count) for count in nodes],
    }


def _rate_of(constants: Constants, nodes: int) -> dict[str, object]:
    staging_s = constants.staging_seconds * constants.spark_share / nodes
    batch_s = constants.serial_seconds + staging_s
    rates = {
        "batches": round(constants.events_per_batch / batch_s),
        "postgres": constants.postgres_limit,
        "broker": constants.broker_limit,
    }
    bound = min(rates, key=rates.__getitem__)
    return {"nodes": nodes, "events_per_second": rates[bound], "bound_by": bound}
