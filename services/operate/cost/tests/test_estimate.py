"""A bill by hand: each figure is one that can be added up on paper."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tallyweir.services.cli.audit.cost import is_over
from tallyweir.services.operate.cost.estimate import (
    HOURS_OF_MONTH,
    Budget,
    Prices,
    Reserved,
    estimate_cost,
    imagine,
    moved_bytes,
    read_prices,
    shares_of_budget,
)
from tallyweir.sinks.postgres.audit import OutputUsage, StepUsage, Usage
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.guarantee import Guarantee

_BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
_ROOT = Path(__file__).parents[4]


def _step(cpu_seconds: float, *, rows_out: int = 0, size: int = 0) -> StepUsage:
    return StepUsage(
        cpu_seconds=cpu_seconds, rows_in=rows_out, rows_out=rows_out, bytes=size
    )


#: Two hours, 2,000,000 records, an hour of CPU; two tables, three rows to one.
_USAGE = Usage(
    pipeline="p",
    guarantee=Guarantee.EXACTLY_ONCE,
    deduplicates=True,
    began_at=_BEGAN,
    ended_at=_BEGAN + timedelta(hours=2),
    batches=100,
    read=2_000_000,
    committed=1_900_000,
    wal_bytes=4_000_000_000,
    cpu_seconds={"driver": 1_800.0, "jvm": 1_000.0, "tasks": 800.0},
    publish_seconds={},
    steps={
        "read": _step(400.0, rows_out=2_000_000, size=1_500_000_000),
        "deduplicate": _step(360.0, rows_out=1_000_000),
        "copy": _step(40.0, rows_out=2_000_000, size=500_000_000),
    },
    outputs={
        "big": OutputUsage(rows=3_000_000, bytes=HOURS_OF_MONTH * 10**9),  # type: ignore[arg-type]
        "small": OutputUsage(rows=1_000_000, bytes=None),
    },
    batch_cpu_s=18.0,
    batch_cpu_r2=0.9,
)
_PRICES = Prices(
    currency="EUR",
    vcpu_hour=0.5,
    gib_hour=0.1,
    wal_gb=0.25,
    storage_gb_month=1.0,
    network_gb=0.5,
)


def test_each_item_is_a_quantity_times_its_price() -> None:
    """An hour of CPU, four GB of WAL, two moved, and a big table for two hours."""
    estimate = estimate_cost(_USAGE, _PRICES)
    costs = {name: item.cost for name, item in estimate.items.items()}
    assert costs == pytest.approx(
        {"compute": 0.5, "memory": 0.0, "wal": 1.0, "network": 1.0, "storage": 2.0}
    )
    assert moved_bytes(_USAGE) == 2_000_000_000
    assert estimate.total == pytest.approx(4.5)
    assert estimate.per_million == pytest.approx(2.25)
    assert estimate.per_day == pytest.approx(54.0)
    assert estimate.per_month == pytest.approx(54.0 / 24 * HOURS_OF_MONTH)


def test_what_is_reserved_is_paid_for_whether_it_is_used_or_not() -> None:
    """Four cores and ten GiB for two hours."""
    prices = replace(_PRICES, reserved=Reserved(vcpus=4, memory_gib=10))
    estimate = estimate_cost(_USAGE, prices)
    assert estimate.items["compute"].cost == pytest.approx(4.0)
    assert estimate.items["memory"].cost == pytest.approx(2.0)


def test_steps_and_tables_add_up_to_what_they_share() -> None:
    """No cost is counted twice, and none is left out."""
    estimate = estimate_cost(_USAGE, _PRICES)
    assert sum(estimate.steps.values()) == pytest.approx(0.5)
    assert estimate.steps["deduplicate"] == pytest.approx(0.05)
    assert sum(estimate.tables.values()) == pytest.approx(estimate.total)
    # Three quarters of what is shared, and all of the storage.
    assert estimate.tables["big"] == pytest.approx(0.75 * 2.5 + 2.0)


def test_a_pipeline_without_batches_costs_nothing_yet() -> None:
    """And no figure divides by zero."""
    empty = replace(
        _USAGE,
        ended_at=_BEGAN,
        batches=0,
        read=0,
        wal_bytes=0,
        cpu_seconds={},
        steps={},
        outputs={},
        batch_cpu_s=None,
        batch_cpu_r2=None,
    )
    estimate = estimate_cost(empty, replace(_PRICES, reserved=Reserved(vcpus=4)))
    assert (estimate.total, estimate.per_day) == (0.0, 0.0)
    assert estimate.per_million is None
    assert imagine(empty, estimate, _PRICES) == ()


def test_a_budget_is_of_a_day_at_this_rate() -> None:
    """54 a day are over 53.9 and within 54."""
    estimate = estimate_cost(_USAGE, _PRICES)
    assert is_over(replace(_PRICES, budget=Budget(per_day=53.9)), estimate)
    assert not is_over(replace(_PRICES, budget=Budget(per_day=54.0001)), estimate)
    assert not is_over(_PRICES, estimate)


def test_a_budget_may_be_of_a_million_records() -> None:
    """2.25 a million are over 2.2; where nothing is read, nothing is passed."""
    estimate = estimate_cost(_USAGE, _PRICES)
    budget = Budget(per_million_events=2.2, per_day=108.0)
    shares = shares_of_budget(estimate, budget)
    assert shares == pytest.approx({"a day": 0.5, "a million records": 2.25 / 2.2})
    assert is_over(replace(_PRICES, budget=budget), estimate)
    nothing = estimate_cost(replace(_USAGE, read=0), _PRICES)
    assert shares_of_budget(nothing, budget)["a million records"] == 0.0


def test_what_could_be_otherwise_tells_its_formula() -> None:
    """IDs: a tenth of the CPU and 24 MB of WAL. Batches: half of 100 times 18 s."""
    estimate = estimate_cost(_USAGE, _PRICES)
    without_ids, at_least_once, larger = imagine(_USAGE, estimate, _PRICES)
    assert without_ids.saving == pytest.approx(0.05 + 0.024 * 0.25)
    assert at_least_once.saving == pytest.approx(without_ids.saving)
    assert "lower bound" in at_least_once.certainty
    assert larger.saving == pytest.approx(0.5 * 900 / 3_600)
    assert larger.share == pytest.approx(larger.saving / 4.5)
    assert all(one.formula for one in (without_ids, at_least_once, larger))


@pytest.mark.parametrize(
    "changes",
    [
        {"batches": 19},
        {"batch_cpu_r2": 0.4},
        {"batch_cpu_s": -1.0},
        {"batch_cpu_s": None, "batch_cpu_r2": None},
    ],
)
def test_nothing_is_said_of_larger_batches_from_too_little(
    changes: dict[str, float | None],
) -> None:
    """A line through a few points, or one that does not fit, is no reason."""
    usage = replace(_USAGE, **changes)  # type: ignore[arg-type]
    found = imagine(usage, estimate_cost(usage, _PRICES), _PRICES)
    assert not any("twice" in one.change for one in found)


def test_the_shipped_prices_are_valid_and_have_every_key() -> None:
    """It is what people begin with."""
    prices = read_prices(_ROOT / "docker" / "observability" / "prices.yaml")
    assert prices.reserved is not None
    assert prices.budget is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("currency: EUR", "vcpu_hour"),
        ("currency: EUR\nvcpu_hour: -1", "vcpu_hour"),
        ("currency: EUR\nvcpu_hour: 1\ncpu: 2", "cpu"),
        ("currency: EUR\nvcpu_hour: .inf", "vcpu_hour"),
        ("currency: EUR\nvcpu_hour: 1\nbudget: {}", "per_day, per_million_events"),
        ("currency: EUR\nvcpu_hour: 1\nbudget: {per_day: 0}", "budget.per_day"),
        ("[", "while parsing"),
        ("", "the file"),
    ],
)
def test_prices_that_are_none_are_refused(tmp_path: Path, text: str, told: str) -> None:
    """With what is wrong, and where."""
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_prices(file)
    assert caught.value.code == "COST_PRICES_INVALID"
    assert told in caught.value.saw
