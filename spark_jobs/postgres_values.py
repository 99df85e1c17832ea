"""Finds values that Postgres cannot store, before they break a COPY for all rows.

Each check looks at whole columns first, which is nearly free, and at single rows only
where a column has something wrong in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BoolArray = npt.NDArray[np.bool_]

#: 4714-11-24 BC, where Postgres' calendar begins, in microseconds and days from 1970.
_FIRST_INSTANT_US = -210_866_803_200_000_000
_FIRST_DAY = -2_440_588
#: 5874897-12-31, where its dates end.
_LAST_DAY = 2_145_042_905


def find_unstorable(table: pa.Table) -> dict[int, str]:
    """Return the rows with a value that no Postgres column can hold, and which one.

    Args:
        table: Columns in one chunk each.
    """
    found: dict[int, str] = {}
    for name in table.column_names:
        column = table.column(name)
        if column.num_chunks == 0:
            continue
        bad, what = _check_column(column.chunk(0))
        for row in np.flatnonzero(bad).tolist() if bad is not None else ():
            found.setdefault(row, f"Field {name} {what}.")
    return found


def _check_column(column: pa.Array) -> tuple[BoolArray | None, str]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _find_bad_text(column), "is not text that Postgres can store"
    if pa.types.is_timestamp(kind):
        instants = column.cast(pa.int64())
        return (
            _outside(instants, _FIRST_INSTANT_US, None),
            "is before the calendar of Postgres begins",
        )
    if pa.types.is_date32(kind):
        days = column.cast(pa.int32())
        return (
            _outside(days, _FIRST_DAY, _LAST_DAY),
            "is outside the calendar of Postgres",
        )
    return None, ""


def _outside(numbers: pa.Array, first: int, last: int | None) -> BoolArray | None:
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None:
        return None
    if bounds["min"] >= first and (last is None or bounds["max"] <= last):
        return None
    bad = pc.less(numbers, first)
    if last is not None:
        bad = pc.or_(bad, pc.greater(numbers, last))
    return np.asarray(bad.fill_null(False))  # noqa: FBT003 - Arrow's own signature


def _find_bad_text(column: pa.Array) -> BoolArray | None:
    """Find NUL characters and bytes that are not UTF-8."""
    if _is_clean(column):
        return None
    as_bytes = column.cast(
        pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    )
    return np.fromiter(
        (value is not None and not _is_text(value) for value in as_bytes.to_pylist()),
        dtype=np.bool_,
        count=len(column),
    )


def _is_clean(column: pa.Array) -> bool:
    content = column.buffers()[2]
    if content is None:
        return True
    # The buffer may hold more than this slice; that only sends us the slow way.
    if b"\x00" in memoryview(content).cast("B").tobytes():
        return False
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_text(value: bytes) -> bool:
    try:
        return "\x00" not in value.decode("utf-8")
    except UnicodeDecodeError:
        return False
