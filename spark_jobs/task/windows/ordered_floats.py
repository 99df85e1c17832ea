"""Floating point as whole numbers that have Postgres' order.

Arrow's least and greatest number pass NaN over beside others; to Postgres, which merges
them, it is the greatest of all. So what a window says of NaN would depend on which
values came to a task together. Whole numbers leave Arrow no choice.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SIGN_BIT = 63
_ALL_BUT_THE_SIGN = np.int64(2**63 - 1)


def to_ordered(values: pa.ChunkedArray) -> pa.Array:
    """Return whole numbers in the order of some floating point; null stays null.

    Every NaN is the same, and greater than infinity; a negative zero is zero.
    """
    # Adding zero makes a positive one of a negative one, and changes nothing else.
    floats = np.asarray(values.cast(pa.float64()).fill_null(0.0)) + 0.0
    floats[np.isnan(floats)] = np.nan
    mask = np.asarray(values.is_null())
    return pa.array(_mirrored(floats.view(np.int64)), mask=mask)


def from_ordered(ordered: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the floating point of a type that ``to_ordered`` has numbered."""
    bits = _mirrored(np.asarray(ordered.fill_null(0)))
    floats = pa.array(bits.view(np.float64), mask=np.asarray(ordered.is_null()))
    return floats.cast(kind)


def _mirrored(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Turn the order of the negative ones around; done twice, it changes nothing."""
    mirrored: npt.NDArray[np.int64] = bits ^ ((bits >> _SIGN_BIT) & _ALL_BUT_THE_SIGN)
    return mirrored
