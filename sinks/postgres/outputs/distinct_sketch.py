"""Counts different values approximately.

The sketch is HyperLogLog of Apache DataSketches. Up to some hundred different values,
the count is exact, except for collisions of the hash. Beyond that, its standard error
is 1.04 / sqrt(4096), which is 1.6 %. The registers do not depend on the order of values
and joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datasketches import HLL_4, hll_sketch, hll_union

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
