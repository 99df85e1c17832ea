"""Values that no Postgres column holds are found before a COPY breaks on them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyweir.spark_jobs.task.postgres_values import (
    find_json_zeros,
    find_unstorable,
    has_json_zero,
)

_US_4714_BC = -210_866_803_200_000_000


def _is_storable(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def _unchecked_text(values: list[bytes | None]) -> pa.Array:
    as_bytes = pa.array(values, pa.binary())
    return pa.Array.from_buffers(
        pa.string(), len(values), as_bytes.buffers(), as_bytes.null_count
    )


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=6) | st.text().map(str.encode)))
def test_text_is_unstorable_where_it_has_a_nul_or_is_no_utf_8(
    values: list[bytes | None],
) -> None:
    """Whole columns and single rows are judged alike."""
    found = find_unstorable(pa.table({"name": _unchecked_text(values)}))
    expected = {
        row
        for row, value in enumerate(values)
        if value is not None and not _is_storable(value)
    }
    assert expected == set(found)
    assert all("name" in detail for detail in found.values())


def test_a_slice_is_judged_by_its_own_rows() -> None:
    """What lies beside a slice in the same buffer is not its fault."""
    column = _unchecked_text([b"a\0", b"b", b"c\0d", b"e"])
    assert {1} == set(find_unstorable(pa.table({"name": column.slice(1, 3)})))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_every_byte_of_a_column_is_looked_at(kind: pa.DataType) -> None:
    """A fault is found in the first row and in the last, whatever the others hold."""
    for others in ("plain", "schön", ""):
        for fault in (b"\0", b"\xff", b"\xe9t\xe9"):
            for row in range(3):
                values: list[bytes | None] = [others.encode()] * 3
                values[row] = fault
                small = _unchecked_text(values).view(pa.binary())
                whole = small.cast(
                    pa.large_binary() if kind == pa.large_string() else pa.binary()
                ).view(kind)
                assert {row} == set(find_unstorable(pa.table({"name": whole})))
                rest = pa.table({"name": whole.slice(row + 1)})
                assert {} == find_unstorable(rest)


def test_a_field_under_two_names_is_reported_under_the_first() -> None:
    """Another column beside it is judged for itself, however alike it is."""
    bad, alike = _unchecked_text([b"a", b"b\0"]), _unchecked_text([b"a\0", b"b"])
    table = pa.table([bad, bad, alike], names=["one", "again", "other"])
    found = find_unstorable(table)
    assert {0, 1} == set(found)
    assert "other" in found[0]
    assert "one" in found[1]


def test_texts_cut_inside_a_character_are_found() -> None:
    """Their bytes together are UTF-8, and none of them is."""
    whole = pa.array(["é"]).buffers()[2]
    offsets = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    cut = pa.Array.from_buffers(pa.string(), 2, [None, offsets, whole])
    assert {0, 1} == set(find_unstorable(pa.table({"name": cut})))


@pytest.mark.parametrize(
    ("kind", "value", "is_bad"),
    [
        (pa.timestamp("us", "UTC"), _US_4714_BC, False),
        (pa.timestamp("us", "UTC"), _US_4714_BC - 1, True),
        (pa.timestamp("us", "UTC"), 2**63 - 1, False),
        (pa.timestamp("us"), _US_4714_BC - 1, True),
        (pa.date32(), -2_440_588, False),
        (pa.date32(), -2_440_589, True),
        (pa.date32(), 2_145_042_905, False),
        (pa.date32(), 2_145_042_906, True),
    ],
)
def test_the_calendar_of_postgres_has_ends(
    kind: pa.DataType,
    value: int,
    is_bad: bool,  # noqa: FBT001 - a parameter of cases
) -> None:
    """The first and last storable values pass, their neighbours do not."""
    width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    column = pa.array([None, value], width).cast(kind)
    assert ({1} if is_bad else set()) == set(find_unstorable(pa.table({"t": column})))


def test_columns_without_values_or_rows_pass() -> None:
    """Nothing is wrong with nothing."""
    nulls = pa.array([None, None], pa.timestamp("us"))
    assert {} == find_unstorable(pa.table({"t": nulls, "n": pa.array([1, 2])}))
    assert {} == find_unstorable(pa.table({"t": nulls}).slice(0, 0))


def test_only_the_first_bad_column_of_a_row_is_named() -> None:
    """One dead letter has one detail."""
    table = pa.table(
        {"one": _unchecked_text([b"\0"]), "two": _unchecked_text([b"\xff"])}
    )
    assert {0: "Field one is not text that Postgres can store."} == find_unstorable(
        table
    )


@settings(deadline=None)
@given(
    st.lists(st.none() | st.lists(st.text(st.sampled_from('\0\\u0\n"a'), max_size=8)))
)
def test_json_has_a_zero_where_a_text_in_it_has_one(
    values: list[list[str] | None],
) -> None:
    """A backslash before u0000 that is in the text itself is none, however many."""
    texts = [None if value is None else json.dumps(value) for value in values]
    expected = [value is not None and "\0" in "".join(value) for value in values]
    assert expected == [text is not None and has_json_zero(text) for text in texts]
    found = find_json_zeros(pa.array(texts, pa.string()))
    assert expected == ([False] * len(values) if found is None else found.tolist())


def test_a_zero_in_json_is_told_from_a_backslash_before_its_digits() -> None:
    """With the fewest characters that can be wrong."""
    texts = [json.dumps(text) for text in ("\0", "\\u0000", "\\\0", "\\\\u0000", "")]
    found = find_json_zeros(pa.array(texts))
    assert found is not None
    assert [True, False, True, False, False] == found.tolist()
