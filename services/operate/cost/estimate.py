"""Multiplies usage by prices, and estimates what changes would save.

docs/cost.md has the same formulas in words. Prices and a budget come from a YAML
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tallyweir.sinks.postgres.audit import Usage
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.guarantee import Guarantee

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


#: Bytes of a new ID in a run: 16 of its fingerprint, 8 of its payload's hash.
_ID_BYTES = 24
#: Fewest batches for a line through them, and how well it must fit.
_BATCHES_MIN = 20
_R2_MIN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A change, and what it would have saved over the span.

    Attributes:
        change: The change.
        saving: The saving in the currency of the prices.
        share: The saving as a share of the total.
        formula: How it is computed, with the figures.
        certainty: How sure it is, in words.
    """

    change: str
    saving: float
    share: float
    formula: str
    certainty: str


def imagine(usage: Usage, estimate: Estimate, prices: Prices) -> tuple[WhatIf, ...]:
    """Return the changes whose saving the measured batches can show.

    With reserved machines, a saving is the part of them that would become idle. It
    saves money only once fewer machines are reserved.
    """
    return tuple(_imagine(usage, estimate, prices))


def _imagine(usage: Usage, estimate: Estimate, prices: Prices) -> Iterator[WhatIf]:
    step = usage.steps.get("deduplicate")
    if usage.deduplicates and step is not None:
        cpu, new = estimate.steps.get("deduplicate", 0.0), step.rows_out
        saving = cpu + new * _ID_BYTES / GB * prices.wal_gb
        formula = (
            f"deduplicate: {step.cpu_seconds:.1f} of {usage.cpu_s:.1f} CPU seconds of "
            f"the compute, and {new:,} new IDs of {_ID_BYTES} bytes of WAL"
        )
        yield _what_if(
            "without IDs (deduplicate: off)",
            saving,
            estimate,
            formula,
            "The CPU is measured; the WAL follows from the format of runs. The CPU "
            "of Postgres and of the driver's holder of IDs is not included.",
        )
        if usage.guarantee is Guarantee.EXACTLY_ONCE:
            yield _what_if(
                "at least once (guarantee: at_least_once)",
                saving,
                estimate,
                f"{formula}; rows go to their tables at once",
                "A lower bound: it looks up no IDs, and also moves no rows from "
                "staging; that CPU belongs to Postgres and is not measured. Rows may "
                "be repeated, and only pipelines that append can use it.",
            )
    yield from _larger_batches(usage, estimate)


def _larger_batches(usage: Usage, estimate: Estimate) -> Iterator[WhatIf]:
    fixed_s, fit = usage.batch_cpu_s, usage.batch_cpu_r2
    if fixed_s is None or fit is None or usage.batches < _BATCHES_MIN:
        return
    if fixed_s <= 0 or fit < _R2_MIN or not usage.cpu_s:
        return
    saved_s = min(fixed_s * usage.batches / 2, usage.cpu_s)
    saving = estimate.items["compute"].cost * saved_s / usage.cpu_s
    yield _what_if(
        "batches of twice the size",
        saving,
        estimate,
        f"{usage.batches:,} batches cost {fixed_s:.3f} CPU seconds each, regardless "
        "of their size; half of them would be saved",
        f"A line through all batches (R² {fit:.2f}), extrapolated to a size that "
        "was never measured; results would wait longer for their batch.",
    )


def _what_if(
    change: str, saving: float, estimate: Estimate, formula: str, certainty: str
) -> WhatIf:
    total = estimate.total
    return WhatIf(
        change=change,
        saving=saving,
        share=saving / total if total else 0.0,
        formula=formula,
        certainty=certainty,
    )


_NOTHING_ELSE = ConfigDict(extra="forbid")
_Amount: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: A limit of zero would always be exceeded.
_Limit: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Resources that cost money even when idle: driver, executors, servers."""

    __pydantic_config__: ClassVar[ConfigDict] = _NOTHING_ELSE

    vcpus: _Amount
    memory_gib: _Amount = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a pipeline's cost: per day, per million records, or both."""

    __pydantic_config__: ClassVar[ConfigDict] = _NOTHING_ELSE

    per_day: _Limit | None = None
    per_million_events: _Limit | None = None

    def __post_init__(self) -> None:
        if self.per_day is None and self.per_million_events is None:
            raise ValueError("a budget has per_day, per_million_events, or both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices in one currency; a resource without a price is free.

    Attributes:
        vcpu_hour: Price of a core for an hour.
        gib_hour: Price of a GiB of memory for an hour; applies to reserved memory only.
        wal_gb: Price of a GB (10^9 bytes) of write-ahead log: its disk, archive and
            standby.
        storage_gb_month: Price of a GB of result tables for a month.
        network_gb: Price of a GB of records read and rows staged.
        reserved: The resources that are paid for; None if only usage is.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _NOTHING_ELSE

    currency: str
    vcpu_hour: _Amount
    gib_hour: _Amount = 0.0
    wal_gb: _Amount = 0.0
    storage_gb_month: _Amount = 0.0
    network_gb: _Amount = 0.0
    reserved: Reserved | None = None
    budget: Budget | None = None


def read_prices(path: Path) -> Prices:
    """Read a file of prices.

    Raises:
        ConfigurationError: ``COST_PRICES_INVALID``, with all problems of the file.
    """
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
        return TypeAdapter(Prices).validate_python(content)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}"
            for one in error.errors()
        )
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        wrong = " ".join(str(error).split())
    raise ConfigurationError(
        "COST_PRICES_INVALID",
        saw=f"{path}: {wrong}.",
        why="A cost is a measured quantity times its price.",
        fix="docs/cost.md lists the keys; docker/observability/prices.yaml has them.",
    )
