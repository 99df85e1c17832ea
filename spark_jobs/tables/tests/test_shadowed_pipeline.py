"""A pipeline in the shadow is known again by what the home made of its definition."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from tallyweir.schemas.pipeline import Append, Outbox, Pipeline, Source
from tallyweir.schemas.pipeline.definition_json import (
    definition_hash,
    pipeline_definition_json,
)
from tallyweir.sinks.postgres.steering.forked_rows import renamed
from tallyweir.spark_jobs.tables.shadowed_pipeline import shadowed

_PIPELINE = Pipeline(
    name="orders",
    source=Source(
        topic="orders",
        schema="order.v1",
        event_id="order_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    outputs=(
        Append(table="orders"),
        Append(table="shop.costly", where="amount > 0.1"),
        Outbox(topic="alarms", key="order_id"),
    ),
)
_SHADOWS = {"orders": "orders__orders_2", "shop.costly": "shop.costly__orders_2"}


def test_only_outputs_with_a_shadow_go_elsewhere() -> None:
    """All else of the pipeline is what its file says."""
    assert shadowed(_PIPELINE, {}) is _PIPELINE
    there = shadowed(_PIPELINE, _SHADOWS)
    assert [output.table for output in there.outputs] == [
        "orders__orders_2",
        "shop.costly__orders_2",
        "outbox:alarms",
    ]
    back = {shadow: front for front, shadow in _SHADOWS.items()}
    assert shadowed(there, back) == _PIPELINE


def test_a_driver_finds_its_definition_as_the_home_has_renamed_it() -> None:
    """Or the fork's first start would be a version that nobody made."""
    kept = json.loads(json.dumps(pipeline_definition_json(_PIPELINE)))
    definition, told = renamed(kept, "orders-2", _SHADOWS)
    driver = shadowed(replace(_PIPELINE, name="orders-2"), _SHADOWS)
    assert told == definition_hash(driver)
    assert definition == pipeline_definition_json(driver)
