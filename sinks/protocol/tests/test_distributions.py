"""Distributions of values that add up, whoever has observed them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.protocol.measures import (
    Distribution,
    distribution_json,
    distribution_of,
    parse_distribution,
)

_values = st.lists(st.integers(-(2**40), 2**40).map(float), max_size=20)


@given(one=_values, other=_values)
def test_distributions_add_up_to_that_of_all_values(
    one: list[float], other: list[float]
) -> None:
    """However they are spread over tasks, and on the way to the driver too."""
    added = distribution_of(one) + distribution_of(other)
    assert added == distribution_of([*one, *other])
    assert parse_distribution(distribution_json(added)) == added


@given(values=st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=50))
def test_a_quantile_is_at_most_twice_too_much(values: list[float]) -> None:
    """And never below the value that it stands for."""
    ordered = sorted(values)
    found = distribution_of(values).quantile(0.5)
    true = ordered[(len(ordered) + 1) // 2 - 1]
    assert found is not None
    assert true <= found <= 2 * true


def test_what_is_not_positive_has_a_bucket() -> None:
    """Nothing observed has no quantile."""
    assert distribution_of([-3.0, 0.0, 0.0]).quantile(0.5) == 0.0
    assert Distribution().quantile(0.5) is None
