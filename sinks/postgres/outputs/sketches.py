"""Chooses the sketch behind an aggregate."""

from __future__ import annotations

from typing import TypeAlias

from tallyweir.sinks.postgres.outputs.distinct_sketch import DistinctSketch
from tallyweir.sinks.postgres.outputs.percentile_sketch import PercentileSketch
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)

Sketch: TypeAlias = DistinctSketch | PercentileSketch


def sketch_of(aggregate: WindowAggregate) -> Sketch:
    """Return what builds, joins and asks the sketches of a sketched aggregate."""
    if aggregate.function is AggregateFunction.APPROX_COUNT_DISTINCT:
        return DistinctSketch()
    assert aggregate.fraction is not None, "a percentile has a fraction"
    return PercentileSketch(fraction=aggregate.fraction)
