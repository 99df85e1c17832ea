"""A pipeline of windows in two versions, on a real home without Spark and Kafka.

The second version has an aggregate more, before the one that both have, so that what
windows hold has other places in it. Each batch holds some events of one window.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg

from integration_tests.harness.postgres_driver import (
    PIPELINE,
    SECOND_US,
    PostgresDriver,
    Row,
    layout_of,
    query,
)
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import (
    LatePolicy,
    SessionWindows,
    WindowKind,
    fixed_windows,
)
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.steering.version_change import Changed
from tallyweir.sinks.postgres.versions.version_claim import describe_layout
from tallyweir.sinks.protocol.decisions import PublishOutcome

START = datetime(2026, 3, 1, tzinfo=UTC)
SIZE_S = 10
ROWS = "SELECT window_start, events FROM by_origin ORDER BY 1"


def aggregate(column: str, function: AggregateFunction, number: int) -> WindowAggregate:
    """Describe an aggregate of whole numbers."""
    return WindowAggregate(
        column=Column(name=column, postgres_type="bigint"),
        function=function,
        number=number,
        partial_type="bigint",
    )


def versioned_layout(
    *aggregates: tuple[str, AggregateFunction],
    windows: WindowKind | None = None,
    note: str = "",
) -> PipelineLayout:
    """Lay out one window table with these aggregates; the note is a rule's."""
    output = WindowTable(
        table="by_origin",
        staging_table="output_0",
        windows=windows or fixed_windows(SIZE_S * SECOND_US),
        by=(Column(name="origin", postgres_type="text"),),
        aggregates=tuple(
            aggregate(column, function, number)
            for number, (column, function) in enumerate(aggregates)
        ),
        allowed_lateness_us=20 * SECOND_US,
        late=LatePolicy.REVISE,
    )
    definition = json.dumps(
        {
            "name": PIPELINE,
            "source": {
                "topic": "numbers",
                "schema": "number.v1",
                "event_id": {"field": "id"},
                "event_time": "at",
            },
            "filter": note or None,
            "outputs": [
                {
                    "table": output.table,
                    "kind": "window",
                    "size": "gap"
                    if isinstance(output.windows, SessionWindows)
                    else "10 seconds",
                    "aggregates": [
                        {"column": column, "function": function.value, "argument": "n"}
                        for column, function in aggregates
                    ],
                }
            ],
        }
    )
    return replace(
        layout_of(output),
        definition=definition,
        definition_hash=hashlib.sha256(definition.encode()).hexdigest(),
        file_text=f"# {note or len(aggregates)}\n",
    )


COUNTED = ("events", AggregateFunction.COUNT)
FIRST = versioned_layout(COUNTED)
SECOND = versioned_layout(("highest", AggregateFunction.MAX), COUNTED)
LAYOUTS = (FIRST, SECOND)


def publish(
    driver: PostgresDriver, at_s: int, events: int, partials: Sequence[object]
) -> PublishOutcome:
    """Publish a batch with a number of events at one time.

    Args:
        driver: Whose layout says what is staged.
        at_s: When, in seconds after ``START``.
        events: How many.
        partials: Of all aggregates, in their order.
    """
    plan = driver.plan(events)
    (output,) = driver.layout.outputs
    assert isinstance(output, WindowTable)
    if isinstance(output.windows, SessionWindows):
        start = START + timedelta(seconds=at_s)
        end = start + timedelta(microseconds=output.windows.gap_us)
    else:
        start = START + timedelta(seconds=at_s // SIZE_S * SIZE_S)
        end = start + timedelta(seconds=SIZE_S)
    row: Row = (start, end, "JFK", events, *partials)
    return driver.publish(plan, driver.stage(plan, {"output_0": [row]}))


def numbers_of(layout: PipelineLayout, events: int, highest: int) -> list[int]:
    """Return the partials of a batch of one of both versions."""
    return [events] if layout is FIRST else [highest, events]


def change(
    dsn: str, layout: PipelineLayout, *, dry_run: bool = False, watched: int = 0
) -> Changed:
    """Update the pipeline to a version."""
    request = steering.ChangeRequest(
        pipeline=PIPELINE, reason="a test", dry_run=dry_run, watched_batches=watched
    )
    with psycopg.connect(dsn) as home:
        return steering.update(home, request, describe_layout(layout))


def go_back(dsn: str, version: int) -> Changed:
    """Roll the pipeline back to a version."""
    request = steering.ChangeRequest(pipeline=PIPELINE, reason="a test of the way back")
    with psycopg.connect(dsn) as home:
        return steering.rollback(home, request, version)


def layout_in_force(dsn: str) -> PipelineLayout:
    """Find which of both versions is in force, and that all places agree on it."""
    ((newest, registered),) = query(
        dsn,
        "SELECT version.definition_hash, pipeline.definition_hash "
        "FROM tallyweir.pipeline_version AS version JOIN tallyweir.pipeline "
        "USING (pipeline) ORDER BY version DESC LIMIT 1",
    )
    assert newest == registered
    (layout,) = [one for one in LAYOUTS if one.definition_hash == newest]
    return layout
