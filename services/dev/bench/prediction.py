"""Predicts the rate of a cluster from measurements of one machine.

docs/benchmarks.md has the formula, says what it leaves out, and how far to trust it.
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
    """Measurements of one machine that ran everything.

    Attributes:
        events_per_batch: Average number of events in a batch.
        serial_seconds: Seconds of a batch outside of staging, when one process works
            and no node helps: planning, the publish transaction, and Spark between.
        staging_seconds: Seconds of a batch in staging, when all tasks work.
        spark_share: The share of Spark and its Python in the processor time of staging,
            which nodes for Spark divide.
        postgres_limit: Events per second of a Postgres that has such a machine alone.
        broker_limit: Events per second of a Kafka broker, likewise.
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
    """Compute the constants from a warm round and the cost of an event in it.

    Args:
        events_per_second: Rate of the round.
        cost: The answer of ``services.dev.bench.cost.cost_between``.
        cores: Cores of the machine.
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
    """Predict the rate for each number of Spark nodes, plus one node for each server.

    Every node is assumed to be like the machine that was measured.
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
