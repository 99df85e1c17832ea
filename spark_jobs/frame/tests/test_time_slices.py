"""An instant's slice has the range that it lies in, and few others."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.spark_jobs.frame.enrichment_join import (
    SLICE,
    TimeSlices,
    cut_into_slices,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = pa.timestamp("us", tz="UTC")

#: Microseconds; far from each other, or near, and at the ends of what can be said.
_moments = st.one_of(
    st.integers(-50, 50), st.integers(-(10**16), 10**16), st.just(2 * 10**17)
)
_Range = tuple[int | None, int | None]


@st.composite
def _ranges(draw: st.DrawFn) -> list[_Range]:
    """Ranges of one key, none of which overlaps another; the ends may be open."""
    borders: list[int | None] = [*sorted(draw(st.lists(_moments, max_size=12)))]
    if draw(st.booleans()):
        borders.insert(0, None)
    if draw(st.booleans()):
        borders.append(None)
    # An end that is open belongs to the first or the last of them only.
    return [pair for pair in pairwise(borders) if draw(st.booleans())]


@given(st.lists(_ranges(), min_size=1, max_size=4), st.lists(_moments, max_size=20))
def test_an_instant_finds_the_ranges_it_lies_in(
    keys: list[list[_Range]], others: list[int]
) -> None:
    """Each once, by its slice and its ends; rows do not more than double."""
    ranges = [(key, *one) for key, ranges in enumerate(keys) for one in ranges]
    rows = pa.table(
        {
            "key": pa.array([key for key, _, _ in ranges], pa.int64()),
            "from": pa.array([begin for _, begin, _ in ranges], _INSTANT),
            "until": pa.array([end for _, _, end in ranges], _INSTANT),
        }
    )
    cut, slices = cut_into_slices(rows, "from", "until", keys=len(keys))
    assert cut.num_rows <= 2 * rows.num_rows
    filed = list(
        zip(
            cut["key"].to_pylist(),
            cut["from"].cast(pa.int64()).to_pylist(),
            cut["until"].cast(pa.int64()).to_pylist(),
            cut[SLICE].to_pylist(),
            strict=True,
        )
    )
    borders = [border for _, *ends in ranges for border in ends if border is not None]
    instants = [*others, *borders, *(border - 1 for border in borders)]
    numbers = slices.number(np.array(instants, dtype=np.int64))
    for instant, number in zip(instants, numbers, strict=True):
        found = [one[:3] for one in filed if one[3] == number and _holds(one, instant)]
        assert sorted(one for one in ranges if _holds(one, instant)) == sorted(found)


def _holds(one: tuple[int | None, ...], instant: int) -> bool:
    _, begin, end, *_ = one
    return (begin is None or begin <= instant) and (end is None or instant < end)


def test_many_ranges_of_a_key_are_not_in_one_slice() -> None:
    """Or each event would be compared with all of them after all."""
    hours = [_EPOCH + timedelta(hours=number) for number in range(8_761)]
    rows = pa.table(
        {"from": pa.array(hours[:-1], _INSTANT), "until": pa.array(hours[1:], _INSTANT)}
    )
    cut, slices = cut_into_slices(rows, "from", "until", keys=1)
    assert TimeSlices(begin_us=0, length_us=3_600_000_000, count=8_760) == slices
    assert cut[SLICE].to_pylist() == list(range(8_760))


# In a process of its own, because PySpark leaves its sockets to the collector.
_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession, functions as F
from tallyweir.spark_jobs.frame.enrichment_join import TimeSlices

local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
slices, instants = json.loads(sys.argv[1])
rows = spark.createDataFrame([(one,) for one in instants], "us bigint")
slices = TimeSlices(**slices)
found = rows.select(slices.column(F.timestamp_micros("us")))
print(json.dumps([row[0] for row in found.collect()]))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_spark_finds_the_same_slice() -> None:
    """Before the first slice, after the last, and at each border; null has none."""
    slices = {"begin_us": -7, "length_us": 3, "count": 5}
    instants = [*range(-30, 31), -(10**17), 2 * 10**17]
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([slices, [*instants, None]])],
        cwd=Path(__file__).parents[3],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    expected = TimeSlices(**slices).number(np.array(instants, dtype=np.int64))
    assert json.loads(run.stdout) == [*expected.tolist(), None]
