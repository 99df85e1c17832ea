"""The pipelines that come with Tallyweir."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from spark_jobs.pipeline import (
    Aggregate,
    AggregateFunction,
    AppendOutput,
    Deduplicate,
    Fixed,
    Pipeline,
    Source,
    WindowOutput,
    load_pipeline,
)
from spark_jobs.pipeline.tests.pipelines import DEPARTURES, SHIPPED

_FILES = [
    file
    for file in sorted(SHIPPED.glob("*"))
    if file.suffix in {".yaml", ".py"} and not file.name.endswith(".template.yaml")
]


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.name)
def test_every_shipped_pipeline_is_valid(file: Path) -> None:
    """Against its contract as well; its name begins that of its file."""
    assert file.stem.startswith(load_pipeline(file).name)


def test_departures_is_exactly_the_documented_pipeline() -> None:
    """The YAML and the Python form of the same pipeline are equal."""
    assert load_pipeline(SHIPPED / "departures.yaml") == DEPARTURES


def test_page_views_is_counted_by_minute() -> None:
    """The benchmark's pipeline: append and windows of a minute."""
    assert load_pipeline(SHIPPED / "page-views.yaml") == Pipeline(
        name="page-views",
        source=Source(
            topic="page-views",
            schema="page_view.v1",
            event_id="event_id",
            event_time="viewed_at",
            watermark_delay=timedelta(minutes=1),
        ),
        deduplicate=Deduplicate(horizon=timedelta(days=1)),
        outputs=(
            AppendOutput(table="page_views"),
            WindowOutput(
                table="page_views_by_minute",
                windows=Fixed(size=timedelta(minutes=1)),
                by=("page", "country"),
                aggregates=(
                    Aggregate(column="views", function=AggregateFunction.COUNT),
                    Aggregate(
                        column="value",
                        function=AggregateFunction.SUM,
                        argument="value",
                    ),
                ),
                allowed_lateness=timedelta(seconds=30),
                metrics="page_view_metrics",
            ),
        ),
    )
