"""Pipelines for tests: a valid one, and parts to put wrong things into."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Deduplicate,
    Enrichment,
    Late,
    Pipeline,
    Rule,
    Source,
    Window,
)
from tallyweir.schemas.pipeline.outputs.window import Fixed

#: Where the shipped pipelines are.
SHIPPED = Path(__file__).parents[3] / "spark_jobs" / "pipelines"

SOURCE = Source(
    topic="flight-departures",
    schema="flight_departure.v1",
    event_id="event_id",
    event_time="scheduled_at",
    watermark_delay=timedelta(hours=2),
)

DEPARTURES = Pipeline(
    name="departures",
    source=SOURCE,
    deduplicate=Deduplicate(horizon=timedelta(days=7), conflicts=True),
    validate=(Rule(reason_code="IMPOSSIBLE_DISTANCE", condition="distance_miles > 0"),),
    enrich=(
        Enrichment(
            table="airlines",
            on={"carrier": "code"},
            select={"airline": "name"},
            default={"airline": "unknown"},
            refresh=timedelta(minutes=10),
        ),
    ),
    outputs=(
        Append(table="departures", columns=None),
        Window(
            table="departures_by_hour",
            windows=Fixed(size=timedelta(hours=1)),
            by=("origin", "airline"),
            aggregates=(
                Aggregate(column="flights", function=AggregateFunction.COUNT),
                Aggregate(
                    column="cancelled",
                    function=AggregateFunction.COUNT_IF,
                    argument="dep_delay_minutes IS NULL",
                ),
                Aggregate(
                    column="mean_delay",
                    function=AggregateFunction.AVG,
                    argument="dep_delay_minutes",
                ),
                Aggregate(
                    column="worst_delay",
                    function=AggregateFunction.MAX,
                    argument="dep_delay_minutes",
                ),
            ),
            allowed_lateness=timedelta(minutes=30),
            late=Late.REVISE,
        ),
    ),
)
