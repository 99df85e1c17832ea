"""Sketches: approximate counts of different values, and percentiles, as bytes.

Different values are counted by HyperLogLog of Apache DataSketches. Up to some hundred
of them, the count is exact, except for collisions of the hash. Beyond that, its
standard error is 1.04 / sqrt(4096), which is 1.6 %. The registers do not depend on the
order of values and joins.

A percentile is within 1 % of its value. Its sketch counts numbers in buckets. Each
bucket ends 2 % further from zero than it begins (DDSketch: Masson, Rim and Lee, 2019).
Joining adds counts, so the result does not depend on how numbers fell into batches. The
quantile sketches of DataSketches that bound their error toss coins: a batch that is
staged again would give another result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from datasketches import HLL_4, hll_sketch, hll_union

from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)

#: The binary logarithm of the number of registers.
_LG_REGISTERS = 12
#: The prefix of each text. DataSketches itself takes an empty text for no value.
_TEXT = "="


class DistinctSketch:
    """Builds, joins and asks sketches, which are bytes."""

    def build(self, values: Iterable[int | float | str]) -> bytes:
        """Return the sketch of some values, which are all of one type.

        The same values give the same bytes, in any order.
        """
        sketch = hll_sketch(_LG_REGISTERS, HLL_4)
        for value in sorted(set(values), key=repr):
            sketch.update(_TEXT + value if isinstance(value, str) else value)
        return bytes(sketch.serialize_compact())

    def join(self, sketches: Sequence[bytes]) -> bytes:
        """Return the sketch of all values that some sketches were built from."""
        union = hll_union(_LG_REGISTERS)
        for sketch in sorted(sketches):
            union.update(hll_sketch.deserialize(sketch))
        return bytes(union.get_result(HLL_4).serialize_compact())

    def ask(self, sketch: bytes) -> int:
        """Return how many different values a sketch was built from."""
        return int(hll_sketch.deserialize(sketch).get_estimate() + 0.5)


F64Array = npt.NDArray[np.float64]

#: How much further from zero a bucket ends than it begins.
_GROWTH = 1.02
#: Numbers closer to zero count as zero, and further ones as infinite.
SIZE_MIN, SIZE_MAX = 1e-30, 1e30

#: The bucket of infinite numbers. The bucket of NaN follows, as Postgres orders them.
_INFINITE = 10_000
_NAN = _INFINITE + 1
_ENTRY = np.dtype([("bucket", "<i2"), ("count", "<i8")])


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileSketch:
    """Builds, joins and asks sketches, which are bytes.

    Attributes:
        fraction: The share of the numbers that are at most the percentile.
    """

    fraction: float

    def build(self, numbers: F64Array) -> bytes:
        """Return the sketch of some numbers, at least one.

        The same numbers give the same bytes, in any order.
        """
        buckets, counts = np.unique(_buckets(numbers), return_counts=True)
        return _entries(buckets, counts)

    def join(self, sketches: Sequence[bytes]) -> bytes:
        """Return the sketch of all numbers that some sketches were built from."""
        parts = np.concatenate([np.frombuffer(one, _ENTRY) for one in sketches])
        buckets, places = np.unique(parts["bucket"], return_inverse=True)
        counts = np.zeros(len(buckets), np.int64)
        np.add.at(counts, places, parts["count"])
        return _entries(buckets, counts)

    def ask(self, sketch: bytes) -> float:
        """Return the percentile: a number in the middle of its bucket."""
        parts = np.frombuffer(sketch, _ENTRY)
        reached = np.cumsum(parts["count"])
        rank = max(1, math.ceil(self.fraction * int(reached[-1])))
        return _middle(int(parts["bucket"][np.searchsorted(reached, rank)]))


def _buckets(numbers: F64Array) -> npt.NDArray[np.int16]:
    size = np.clip(np.abs(numbers), SIZE_MIN, SIZE_MAX)
    bucket = np.ceil(np.log(size / SIZE_MIN) / math.log(_GROWTH)) + 1
    bucket = np.where(np.abs(numbers) > SIZE_MAX, _INFINITE, bucket)
    bucket = np.where(np.abs(numbers) < SIZE_MIN, 0, bucket) * np.sign(numbers)
    return np.where(np.isnan(numbers), _NAN, bucket).astype(np.int16)


def _middle(bucket: int) -> float:
    if bucket == _NAN:
        return math.nan
    if bucket == 0:
        return 0.0
    if abs(bucket) == _INFINITE:
        return math.copysign(math.inf, bucket)
    end = SIZE_MIN * _GROWTH ** (abs(bucket) - 1)
    return math.copysign(end * 2 / (1 + _GROWTH), bucket)


def _entries(buckets: npt.NDArray[Any], counts: npt.NDArray[Any]) -> bytes:
    entries = np.empty(len(buckets), _ENTRY)
    entries["bucket"], entries["count"] = buckets, counts
    return entries.tobytes()


Sketch: TypeAlias = DistinctSketch | PercentileSketch


def sketch_of(aggregate: WindowAggregate) -> Sketch:
    """Return what builds, joins and asks the sketches of a sketched aggregate."""
    if aggregate.function is AggregateFunction.APPROX_COUNT_DISTINCT:
        return DistinctSketch()
    assert aggregate.fraction is not None, "a percentile has a fraction"
    return PercentileSketch(fraction=aggregate.fraction)
