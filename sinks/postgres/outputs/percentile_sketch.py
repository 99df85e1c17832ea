"""A percentile of many numbers, within 1 % of its value.

The sketch counts numbers in buckets. Each bucket ends 2 % further from zero than it
begins (DDSketch: Masson, Rim and Lee, 2019). Joining adds counts, so the result does
not depend on how numbers fell into batches. The quantile sketches of DataSketches that
bound their error toss coins: a batch that is staged again would give another result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
