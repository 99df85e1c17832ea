"""Multiplies usage by prices; docs/cost.md has the same formulas in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallyweir.services.operate.cost.prices import Budget, Prices
from tallyweir.sinks.postgres.audit import Usage

GB = 1_000_000_000
HOURS_OF_DAY = 24
#: 365.25 days / 12.
HOURS_OF_MONTH = 730.5
_SECONDS_OF_HOUR = 3_600
_MILLION = 1_000_000
#: Steps whose bytes cross the network: records from Kafka, rows to Postgres.
_MOVING = ("read", "copy", "copy_keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One line of the bill: a quantity, its price, and the product of the two."""

    quantity: float
    unit: str
    price: float

    @property
    def cost(self) -> float:
        return self.quantity * self.price


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The cost of a span.

    Attributes:
        items: The lines of the bill, by name.
        steps: Each step's part of ``compute``, by its CPU seconds; ``other`` is Spark,
            planning and publishing.
        tables: The cost of each output: its part, by rows, of the total without
            storage, and the table's own storage.
        hours: Hours of the span.
        read: Records read in the span.
    """

    currency: str
    items: Mapping[str, Item]
    steps: Mapping[str, float]
    tables: Mapping[str, float]
    hours: float
    read: int

    @property
    def total(self) -> float:
        return sum(item.cost for item in self.items.values())

    @property
    def per_million(self) -> float | None:
        """Cost of a million records; None if no record was read."""
        return self.total / self.read * _MILLION if self.read else None

    @property
    def per_day(self) -> float:
        """Cost of a day at the rate of the span."""
        return self.total / self.hours * HOURS_OF_DAY if self.hours else 0.0

    @property
    def per_month(self) -> float:
        """Cost of a month at the rate of the span."""
        return self.per_day / HOURS_OF_DAY * HOURS_OF_MONTH


def shares_of_budget(estimate: Estimate, budget: Budget) -> dict[str, float]:
    """Return the used share of each limit, by its subject; above 1, it is exceeded.

    If no record was read, the share of the limit per million records is 0.
    """
    shares = {}
    if budget.per_day is not None:
        shares["a day"] = estimate.per_day / budget.per_day
    if budget.per_million_events is not None:
        per_million = estimate.per_million or 0.0
        shares["a million records"] = per_million / budget.per_million_events
    return shares


def estimate_cost(usage: Usage, prices: Prices) -> Estimate:
    """Multiply usage by prices."""
    hours, reserved = usage.hours, prices.reserved
    vcpu_hours = usage.cpu_s / _SECONDS_OF_HOUR
    gib_hours = 0.0
    if reserved is not None:
        vcpu_hours = reserved.vcpus * hours
        gib_hours = reserved.memory_gib * hours
    stored = sum(one.bytes or 0 for one in usage.outputs.values())
    items = {
        "compute": Item(quantity=vcpu_hours, unit="vCPU hours", price=prices.vcpu_hour),
        "memory": Item(quantity=gib_hours, unit="GiB hours", price=prices.gib_hour),
        "wal": Item(quantity=usage.wal_bytes / GB, unit="GB", price=prices.wal_gb),
        "network": Item(
            quantity=moved_bytes(usage) / GB, unit="GB", price=prices.network_gb
        ),
        "storage": Item(
            quantity=stored / GB * hours / HOURS_OF_MONTH,
            unit="GB months",
            price=prices.storage_gb_month,
        ),
    }
    return Estimate(
        currency=prices.currency,
        items=items,
        steps=_steps(usage, items["compute"].cost),
        tables=_tables(usage, items),
        hours=hours,
        read=usage.read,
    )


def moved_bytes(usage: Usage) -> int:
    """Return the bytes of records read and rows staged, by their size in memory."""
    return sum(usage.steps[name].bytes for name in _MOVING if name in usage.steps)


def _steps(usage: Usage, compute: float) -> dict[str, float]:
    if not usage.cpu_s:
        return {}
    of_cpu_s = compute / usage.cpu_s
    steps = {name: one.cpu_seconds * of_cpu_s for name, one in usage.steps.items()}
    return {**steps, "other": max(0.0, compute - sum(steps.values()))}


def _tables(usage: Usage, items: Mapping[str, Item]) -> dict[str, float]:
    rows = sum(one.rows for one in usage.outputs.values())
    stored = sum(one.bytes or 0 for one in usage.outputs.values())
    storage = items["storage"].cost
    shared = sum(item.cost for item in items.values()) - storage
    return {
        name: (shared * one.rows / rows if rows else 0.0)
        + (storage * (one.bytes or 0) / stored if stored else 0.0)
        for name, one in usage.outputs.items()
    }
