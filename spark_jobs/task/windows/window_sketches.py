"""A task's sketches of the values in each window and group."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.sinks.postgres.outputs.distinct_sketch import DistinctSketch
from tallyweir.sinks.postgres.outputs.percentile_sketch import PercentileSketch
from tallyweir.sinks.postgres.outputs.sketches import sketch_of
from tallyweir.sinks.postgres.outputs.window_aggregates import WindowAggregate


def collecting(aggregate: WindowAggregate) -> str:
    """Name the Arrow aggregation that collects a group's values for its sketch."""
    return "distinct" if isinstance(sketch_of(aggregate), DistinctSketch) else "list"


def sketchable(
    aggregate: WindowAggregate, argument: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Convert values to a type that the sketch takes.

    For a sketch that counts distinct values, everything that is a whole number becomes
    64 bits, so that a contract may widen its field. Decimals become text without
    trailing zeros.
    """
    kind = argument.type
    if isinstance(sketch_of(aggregate), PercentileSketch) or pa.types.is_floating(kind):
        return argument.cast(pa.float64(), safe=False)
    if pa.types.is_decimal(kind):
        texts = [
            None if value is None else str(value.normalize())
            for value in argument.to_pylist()
        ]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return argument
    if pa.types.is_date32(kind):
        argument = argument.cast(pa.int32())
    return argument.cast(pa.int64())


def sketch_groups(
    aggregate: WindowAggregate, groups: pa.ChunkedArray
) -> tuple[pa.Array, pa.Array]:
    """Return the sketch and the estimate of each group; null without values."""
    sketch = sketch_of(aggregate)
    sketches: list[bytes | None] = []
    for group in groups.combine_chunks():
        values = pc.drop_null(group.values)
        if not len(values):
            sketches.append(None)
        elif isinstance(sketch, PercentileSketch):
            sketches.append(sketch.build(values.to_numpy(zero_copy_only=False)))
        else:
            sketches.append(sketch.build(values.to_pylist()))
    estimates = [None if one is None else sketch.ask(one) for one in sketches]
    _, estimate = aggregate.partials
    is_count = estimate.column.postgres_type == "bigint"
    return (
        pa.array(sketches, pa.binary()),
        pa.array(estimates, pa.int64() if is_count else pa.float64()),
    )
