"""How a pipeline drops what its producers sent twice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from spark_jobs.pipeline.durations import check_duration
from spark_jobs.pipeline.problems import raise_if_any

DEDUPLICATE_HORIZON = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate:
    """Drop what a producer sent twice.

    Attributes:
        horizon: How far back, in event time, an ID is remembered. An event older
            than that cannot be checked and goes to the expired table.
        conflicts: Whether an ID that comes again with another payload becomes a dead
            letter ``ID_CONFLICT`` instead of counting as a duplicate.
    """

    horizon: timedelta = DEDUPLICATE_HORIZON
    conflicts: bool = True

    def __post_init__(self) -> None:
        raise_if_any(
            "Deduplicate", check_duration(self.horizon, ("horizon",), zero=False)
        )
