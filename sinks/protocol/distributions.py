"""Distributions of values that a pipeline's own functions observe; they add up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The bucket of values that are not above zero.
NOT_POSITIVE = -1_075


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Some values, counted by powers of two.

    Attributes:
        count: Number of values.
        total: Their sum.
        least: The least value; None without values.
        greatest: The greatest value; None without values.
        buckets: Number of values that are at most two to the power of the key and above
            half of that. ``NOT_POSITIVE`` counts those that are not above zero.
    """

    count: int = 0
    total: float = 0.0
    least: float | None = None
    greatest: float | None = None
    buckets: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: Distribution) -> Distribution:
        """Put the values of two tasks together."""
        return Distribution(
            count=self.count + other.count,
            total=self.total + other.total,
            least=min(_known(self.least, other.least), default=None),
            greatest=max(_known(self.greatest, other.greatest), default=None),
            buckets={
                power: self.buckets.get(power, 0) + other.buckets.get(power, 0)
                for power in sorted({*self.buckets, *other.buckets})
            },
        )

    def quantile(self, share: float) -> float | None:
        """Return a bound for a share of the values, at most twice the true quantile."""
        wanted = math.ceil(share * self.count)
        seen = 0
        for power, count in sorted(self.buckets.items()):
            seen += count
            if seen >= wanted and self.greatest is not None:
                bound = 0.0 if power == NOT_POSITIVE else math.ldexp(1.0, power)
                return min(bound, self.greatest)
        return None


def distribution_of(values: Iterable[float]) -> Distribution:
    """Return the distribution of finite values."""
    found = list(values)
    buckets: dict[int, int] = {}
    for value in found:
        power = _power(value)
        buckets[power] = buckets.get(power, 0) + 1
    return Distribution(
        count=len(found),
        total=math.fsum(found),
        least=min(found, default=None),
        greatest=max(found, default=None),
        buckets=buckets,
    )


def distribution_json(one: Distribution) -> dict[str, Any]:
    """Return plain values for JSON."""
    return {
        "count": one.count,
        "total": one.total,
        "least": one.least,
        "greatest": one.greatest,
        "buckets": {str(power): count for power, count in one.buckets.items()},
    }


def parse_distribution(value: Mapping[str, Any]) -> Distribution:
    """Read what ``distribution_json`` wrote."""
    return Distribution(
        count=value["count"],
        total=value["total"],
        least=value["least"],
        greatest=value["greatest"],
        buckets={int(power): count for power, count in value["buckets"].items()},
    )


def _power(value: float) -> int:
    if value <= 0:
        return NOT_POSITIVE
    fraction, power = math.frexp(value)
    # A power of two is the greatest value of its bucket.
    return power - 1 if fraction == 0.5 else power  # noqa: PLR2004 - a half


def _known(*values: float | None) -> list[float]:
    return [value for value in values if value is not None]
