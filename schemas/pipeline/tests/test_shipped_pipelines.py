"""The pipelines that come with Tallyweir."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Deduplicate,
    Fixed,
    Pipeline,
    Source,
    Window,
    definition_hash,
    load_pipeline,
)
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES, SHIPPED

_FILES = [
    file
    for file in sorted(SHIPPED.glob("*"))
    if file.suffix in {".yaml", ".py"} and not file.name.endswith(".template.yaml")
]


#: Begin the hashes of definitions, by which a ledger tells whether a file has changed.
_HASHES = {
    "csv-import": "8db3aae93212",
    "departures": "74b54ed26a81",
    "departures-enriched": "1d6765c5a0bc",
    "factory": "891868fb3822",
    "json-orders": "91c7bc492ca7",
    "orders-outbox": "2b10660a11f8",
    "page-views": "618fd3f83e13",
    "sensors": "3c38531c5aa8",
    "sessions": "fb6e45408c67",
    "user-activity": "4f5fefe0ee09",
}


def test_the_hash_of_a_definition_stays_the_same() -> None:
    """Another one would make every running pipeline a changed one."""
    files = {file.stem: definition_hash(load_pipeline(file)) for file in _FILES}
    assert {name: whole[:12] for name, whole in files.items()} == _HASHES


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
            Append(table="page_views"),
            Window(
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
