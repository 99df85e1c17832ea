"""Approximate aggregates: how far off they are, and that replays repeat them."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from datasketches import HLL_4, hll_sketch
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.postgres.outputs.sketches import (
    SIZE_MAX,
    SIZE_MIN,
    DistinctSketch,
    PercentileSketch,
)

_COUNT = DistinctSketch()


def _chance() -> random.Random:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")  # noqa: T201 - a failure must tell it
    return random.Random(seed)


def _percentile(values: Sequence[float], fraction: float) -> float:
    """Return the least value that this share of the values does not exceed."""
    rank = max(1, math.ceil(fraction * len(values)))
    return sorted(values)[rank - 1]


@pytest.mark.parametrize("different", [1, 100, 1_000, 30_000])
def test_a_count_is_within_five_standard_errors(different: int) -> None:
    """Of values that come again and again, in many parts that overlap."""
    chance = _chance()
    values = [chance.getrandbits(62) for _ in range(different)]
    parts = [
        _COUNT.build(chance.choices(values, k=different // 3 + 1)) for _ in range(4)
    ]
    parts += [_COUNT.build(values[::2]), _COUNT.build(values[1::2] or values)]
    counted = _COUNT.ask(_COUNT.join(parts))
    assert abs(counted - different) <= 5 * 1.04 / math.sqrt(4096) * different


@pytest.mark.parametrize("different", [7, 300, 5_000])
def test_a_count_does_not_depend_on_order_or_process(different: int) -> None:
    """A batch that is staged again gives the same bytes."""
    chance = _chance()
    values = [f"value {chance.random()}" for _ in range(different)]
    shuffled = chance.sample(values * 2, 2 * different)
    assert _COUNT.build(values) == _COUNT.build(shuffled)
    parts = [_COUNT.build(values[start::5]) for start in range(5)]
    joined = _COUNT.join(parts)
    assert joined == _COUNT.join(chance.sample(parts, 5))
    program = (
        "import sys\n"
        "from tallyweir.sinks.postgres.outputs.sketches import DistinctSketch\n"
        "print(DistinctSketch().build(sys.stdin.read().split(',')).hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=",".join(shuffled),
        capture_output=True,
        text=True,
        check=True,
    )
    assert _COUNT.build(values).hex() == done.stdout.strip()


def test_the_empty_text_is_a_value() -> None:
    """DataSketches itself leaves it out."""
    sketch = hll_sketch(12, HLL_4)
    sketch.update("")
    assert sketch.is_empty()
    assert 2 == _COUNT.ask(_COUNT.build(["", "x"]))


_numbers = st.floats(allow_nan=False).filter(
    lambda n: n == 0 or SIZE_MIN <= abs(n) <= SIZE_MAX
)


@given(
    parts=st.lists(st.lists(_numbers, min_size=1), min_size=1),
    fraction=st.floats(0, 1),
)
def test_a_percentile_is_within_one_hundredth(
    parts: list[list[float]], fraction: float
) -> None:
    """Always, of numbers of any sign and size between the limits."""
    sketch = PercentileSketch(fraction=fraction)
    joined = sketch.join([sketch.build(np.array(part)) for part in parts])
    exact = _percentile([number for part in parts for number in part], fraction)
    assert abs(sketch.ask(joined) - exact) <= 0.01 * abs(exact)


@pytest.mark.parametrize("fraction", [0, 0.5, 0.95, 0.999, 1])
def test_a_percentile_of_many_numbers_is_within_one_hundredth(fraction: float) -> None:
    """As of latencies, most of which are small and some very large."""
    chance = _chance()
    numbers = [chance.lognormvariate(3, 2) for _ in range(20_000)]
    sketch = PercentileSketch(fraction=fraction)
    exact = _percentile(numbers, fraction)
    assert abs(sketch.ask(sketch.build(np.array(numbers))) - exact) <= 0.01 * exact


def test_a_percentile_does_not_depend_on_order_or_batches() -> None:
    """Joining adds counts, so it gives the sketch of all numbers at once."""
    chance = _chance()
    numbers = [chance.gauss(0, 100) for _ in range(1_000)]
    sketch = PercentileSketch(fraction=0.9)
    whole = sketch.build(np.array(numbers))
    chance.shuffle(numbers)
    parts = [sketch.build(np.array(numbers[start::7])) for start in range(7)]
    assert whole == sketch.join(parts) == sketch.join(chance.sample(parts, 7))


def test_numbers_beyond_the_limits_are_zero_infinite_or_last() -> None:
    """NaN stands behind all numbers, as Postgres orders them."""
    beyond = [math.nan, -1e31, 1e-31, -math.inf, -1e-31, 1e300]
    asked = []
    for rank in range(1, 7):
        sketch = PercentileSketch(fraction=rank / 6)
        asked.append(sketch.ask(sketch.build(np.array(beyond))))
    assert [-math.inf, -math.inf, 0.0, 0.0, math.inf] == asked[:5]
    assert math.isnan(asked[5])
