"""Prices and a budget, from a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tallyweir.sinks.protocol.errors import ConfigurationError

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
