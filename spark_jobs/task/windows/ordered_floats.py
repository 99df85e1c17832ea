"""Converts floats to whole numbers that have the order of floats in Postgres.

Arrow's minimum and maximum ignore NaN among other numbers. Postgres, which merges them,
takes NaN for the greatest number. So a window's result would depend on which values
came to a task together. With whole numbers, Arrow and Postgres agree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SIGN_BIT = 63
_ALL_BUT_THE_SIGN = np.int64(2**63 - 1)


def to_ordered(values: pa.ChunkedArray) -> pa.Array:
    """Return whole numbers in the order of some floats; null stays null.

    Every NaN is the same, and greater than infinity; negative zero is zero.
    """
    # Adding zero makes negative zero positive, and changes nothing else.
    floats = np.asarray(values.cast(pa.float64()).fill_null(0.0)) + 0.0
    floats[np.isnan(floats)] = np.nan
    mask = np.asarray(values.is_null())
    return pa.array(_mirrored(floats.view(np.int64)), mask=mask)


def from_ordered(ordered: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the floats, of a given type, that ``to_ordered`` has converted."""
    bits = _mirrored(np.asarray(ordered.fill_null(0)))
    floats = pa.array(bits.view(np.float64), mask=np.asarray(ordered.is_null()))
    return floats.cast(kind)


def _mirrored(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Reverse the order of negative numbers; doing it twice changes nothing."""
    mirrored: npt.NDArray[np.int64] = bits ^ ((bits >> _SIGN_BIT) & _ALL_BUT_THE_SIGN)
    return mirrored
