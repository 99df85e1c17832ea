"""Whatever is asked and answered arrives as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FatalError,
    FencedError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer
from tallyweir.sinks.seen_ids.claim_server import (
    pack_answer,
    pack_failure,
    pack_question,
    unpack_answer,
    unpack_question,
)

_INT64 = st.integers(-(2**63), 2**63 - 1)
_UINT64 = st.integers(0, 2**64 - 1)
_COLUMNS = ("place", "offset", "bucket", "hi", "lo", "payload_hashes", "only_corrects")


def _array(values: list[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.array(values, dtype=dtype)


@st.composite
def _questions(draw: st.DrawFn) -> Candidates:
    rows = draw(st.integers(0, 20))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=rows, max_size=rows))

    hashes = _array(column(_UINT64), np.uint64) if draw(st.booleans()) else None
    only = _array(column(st.booleans()), np.bool_) if draw(st.booleans()) else None
    return Candidates(
        place=_array(column(_INT64), np.int64),
        offset=_array(column(_INT64), np.int64),
        bucket=_array(column(_INT64), np.int64),
        hi=_array(column(_UINT64), np.uint64),
        lo=_array(column(_UINT64), np.uint64),
        payload_hashes=hashes,
        only_corrects=only,
    )


def _check_same(asked: Candidates, arrived: Candidates) -> None:
    for name in _COLUMNS:
        sent, found = getattr(asked, name), getattr(arrived, name)
        assert (sent is None) == (found is None), name
        if sent is not None:
            assert sent.dtype == found.dtype, name
            assert sent.tolist() == found.tolist(), name
            assert found.flags.aligned, name


@given(round_number=st.integers(0, 2**63 - 1), asked=_questions())
def test_a_question_arrives_as_it_was_asked(
    round_number: int, asked: Candidates
) -> None:
    """With any of the optional columns, and with rows or without."""
    number, arrived = unpack_question(pack_question(round_number, asked))
    assert number == round_number
    _check_same(asked, arrived)


@given(asked=_questions())
def test_columns_that_lie_apart_in_memory_arrive_as_they_are(asked: Candidates) -> None:
    """Two words of a fingerprint may be two columns of one array."""
    turned = asked.take(np.arange(len(asked))[::-1])
    words = np.stack([turned.hi, turned.lo], axis=1)
    apart = Candidates(
        place=turned.place[::-1],
        offset=turned.offset[::-1],
        bucket=turned.bucket[::-1],
        hi=words[::-1, 0],
        lo=words[::-1, 1],
        payload_hashes=asked.payload_hashes,
        only_corrects=asked.only_corrects,
    )
    _check_same(asked, unpack_question(pack_question(1, apart))[1])


@given(rows=st.lists(st.tuples(st.integers(0, 255), _INT64), max_size=20))
def test_an_answer_arrives_as_it_was_given(rows: list[tuple[int, int]]) -> None:
    """Classes and buckets, row by row."""
    answer = ClaimAnswer(
        classes=_array([row[0] for row in rows], np.uint8),
        buckets=_array([row[1] for row in rows], np.int64),
    )
    arrived = unpack_answer(pack_answer(answer))
    assert arrived.classes.dtype == np.uint8
    assert arrived.buckets.dtype == np.int64
    assert arrived.buckets.flags.aligned
    assert list(zip(arrived.classes, arrived.buckets, strict=True)) == rows


@pytest.mark.parametrize(
    "kind",
    [ConfigurationError, FatalError, FencedError, RetryableError],
)
def test_an_error_is_raised_where_the_answer_is_read(
    kind: type[TallyweirError],
) -> None:
    """As what it was: whether to try again is decided by its kind."""
    error = kind("A_CODE", saw='saw "ü"', why="why\n", fix="fix \u2028")
    with pytest.raises(TallyweirError) as raised:
        unpack_answer(pack_failure(error))
    told = raised.value
    assert kind is type(told)
    assert ("A_CODE", error.saw, error.why, error.fix) == (
        told.code,
        told.saw,
        told.why,
        told.fix,
    )
