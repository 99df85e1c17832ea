"""How a pipeline drops what its producers sent twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from spark_jobs.pipeline.durations import check_duration
from spark_jobs.pipeline.problems import Problem, raise_if_any
from spark_jobs.pipeline.source import Source

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


def check_one_history(
    deduplicate: Deduplicate | None, source: Source
) -> Iterator[Problem]:
    """Yield what would make an event of one contract the repeat of another's.

    There is one history of IDs over all contracts. Two events of different contracts
    never have the same payload, so a conflict tells that they share an ID.
    """
    if deduplicate is None or deduplicate.conflicts or len(source.schemas) == 1:
        return
    yield Problem(
        code="PIPELINE_CONFLICTS",
        at=("deduplicate", "conflicts"),
        saw=f"conflicts is false, and there are {len(source.schemas)} contracts.",
        why="Of two events of different contracts with one ID, the second would be "
        "dropped as a repeat, and nobody would know.",
        fix="Leave conflicts out, or read each contract with a pipeline of its own.",
    )
