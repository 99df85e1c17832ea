"""Keys and values that an output cannot keep are found in the events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.key_text import KEY_BYTES_MAX, format_key
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.spark_jobs.source.event_columns import FILTERED_BY, wanted_column
from tallyweir.spark_jobs.task.postgres_values import find_long_keys, find_nested_zeros

_NAME = Column(name="name", postgres_type="text")
_RAW = Column(name="raw", postgres_type="bytea")
_COUNT = Column(name="count", postgres_type="bigint")
_TAGS = Column(name="tags", postgres_type="jsonb")


def _window(*by: Column) -> WindowTable:
    return WindowTable(
        table="by_name",
        staging_table="output_0",
        windows=fixed_windows(1_000_000),
        by=by,
        aggregates=(),
        allowed_lateness_us=0,
        late=LatePolicy.DROP,
    )


def _keyed(*key: Column, selects: tuple[Column, ...] = ()) -> KeyedTable:
    return KeyedTable(
        table="totals",
        staging_table="output_0",
        event_columns=selects,
        key=key,
        columns=(_COUNT,),
    )


def _found(
    outputs: Sequence[Output],
    columns: Mapping[str, object],
    alive: Sequence[bool] | None = None,
) -> list[int]:
    table = pa.table(dict(columns)).combine_chunks()
    mask = np.array([True] * table.num_rows if alive is None else alive)
    return [row for row, _ in find_long_keys(table, mask, outputs)]


def test_a_group_has_so_many_bytes_and_no_more() -> None:
    """Bytes count, not characters; null has none."""
    names = ["x" * KEY_BYTES_MAX, "x" * (KEY_BYTES_MAX + 1), None]
    names += ["é" * (KEY_BYTES_MAX // 2), "é" * (KEY_BYTES_MAX // 2) + "x"]
    assert [1, 4] == _found([_window(_NAME)], {"name": names})


def test_the_columns_of_a_group_count_together() -> None:
    """They stand in one entry of the index: texts, bytes, and room for all others."""
    names = ["x" * 1_000, "x" * 1_000, "x" * 1_975, "x" * 1_976]
    raws = [b"\0" * 975, b"\0" * 976, None, None]
    output = _window(_NAME, _RAW, _COUNT)
    assert [1, 3] == _found(
        [output],
        {"name": names, "raw": pa.array(raws, pa.binary()), "count": [1] * 4},
    )


@pytest.mark.parametrize("letter", ["x", '"', "\\", "\n", "\x01", "é", "\U0001f600"])
def test_a_key_is_as_long_as_its_text(letter: str) -> None:
    """What is stored is escaped, so quotes count twice and control characters more."""
    size = len(format_key([letter]).encode()) - len(format_key([""]).encode())
    fits = (KEY_BYTES_MAX - len(format_key(["", 7]))) // size
    names = [letter * fits, letter * (fits + 1)]
    assert len(format_key([names[0], 7]).encode()) <= KEY_BYTES_MAX
    assert [1] == _found([_keyed(_NAME, _COUNT)], {"name": names, "count": [7, 7]})


def test_a_key_of_plain_numbers_is_never_too_long() -> None:
    """However many of them there are."""
    columns = [Column(name=f"c{n}", postgres_type="bigint") for n in range(90)]
    values = {column.name: [-(2**63)] for column in columns}
    assert [] == _found([_keyed(*columns)], values)


def test_only_what_an_output_would_take_is_held_against_it() -> None:
    """A condition or the filter keeps long keys out; other outputs have no keys."""
    append = AppendTable(table="t", staging_table="output_0", event_columns=(_NAME,))
    found = _found(
        [append, _window(_NAME)],
        {
            "name": ["x" * 3_000] * 4,
            wanted_column(0): [True] * 4,
            wanted_column(1): [True, False, True, True],
            FILTERED_BY: pa.array([None, None, 0, None], pa.int32()),
        },
        alive=[True, True, True, False],
    )
    assert [0] == found


def test_a_function_is_not_given_what_it_could_not_return() -> None:
    """A NUL in a nested value; an escaped backslash before its digits is none."""
    output = _keyed(_NAME, selects=(_TAGS, _NAME))
    tags = [r'["\u0000"]', r'["\\u0000"]', None, '["a"]', r'["\u0000"]']
    table = pa.table(
        {
            "name": ["a"] * 5,
            "tags": pa.array(tags, pa.string()),
            wanted_column(0): [True, True, True, True, False],
        }
    ).combine_chunks()
    for alive, expected in ((True, [0]), (False, [])):
        found = find_nested_zeros(table, np.array([alive] * 5), [output])
        assert expected == [row for row, _ in found]


def test_the_detail_names_the_table_and_the_field() -> None:
    """And nothing of the event itself."""
    table = pa.table({"name": ["x" * 3_000], "tags": [r'["\u0000"]']})
    outputs: list[Output] = [_window(_NAME), _keyed(_COUNT, selects=(_TAGS,))]
    table = table.append_column("count", pa.array([1])).combine_chunks()
    alive = np.array([True])
    found = [
        *find_long_keys(table, alive, outputs),
        *find_nested_zeros(table, alive, outputs),
    ]
    assert [
        "The event's key in by_name has 3000 bytes; 2000 are allowed.",
        "Field tags has a NUL, which jsonb refuses.",
    ] == [what for _, what in found]
