"""Settings for dropping events that producers send twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from tallyweir.schemas.pipeline.checks.durations import check_duration
from tallyweir.schemas.pipeline.checks.problems import Problem, raise_if_any
from tallyweir.schemas.pipeline.document.file_keys import Duration, Flag, Keys, Share
from tallyweir.schemas.pipeline.events.source import PositionId, Source
from tallyweir.sinks.protocol.catalog_limits import (
    BUCKETS_MAX,
    BUCKETS_PER_HORIZON,
    FALSE_POSITIVES,
)

DEDUPLICATE_HORIZON = timedelta(days=7)
_RATE_MIN = 0.00001
_RATE_MAX = 0.1
_BUCKET_SECONDS_MIN = 60
_BUCKET_SECONDS_DEFAULT = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate:
    """Drop events that a producer sends twice.

    Attributes:
        horizon: How far back in event time IDs are remembered. An older event cannot be
            checked, and goes to the expired table.
        conflicts: An ID that comes again with another payload becomes a dead letter
            ``ID_CONFLICT`` instead of a duplicate.
        false_positives: The share of new IDs that a filter may take for seen ones, so
            that they are looked up. It affects only speed and memory.
    """

    horizon: timedelta = DEDUPLICATE_HORIZON
    conflicts: bool = True
    false_positives: float = FALSE_POSITIVES

    def __post_init__(self) -> None:
        raise_if_any(
            "Deduplicate",
            [
                *check_duration(self.horizon, ("horizon",), zero=False),
                *_check_rate(self.false_positives),
            ],
        )


def _check_rate(rate: float) -> Iterator[Problem]:
    """Yield a problem if a filter with this rate would cost more than it saves."""
    if _RATE_MIN <= rate <= _RATE_MAX:
        return
    yield Problem(
        code="PIPELINE_RATE",
        at=("false_positives",),
        saw=f"The rate is {rate:g}.",
        why=f"Beyond {_RATE_MAX:g} a filter saves too few look-ups, and below "
        f"{_RATE_MIN:g} it takes more memory than the look-ups are worth.",
        fix="Leave it out, or write a share such as 0.001, which is one in a thousand.",
    )


def check_one_history(
    deduplicate: Deduplicate | None, source: Source
) -> Iterator[Problem]:
    """Yield a problem if an event of one contract could be a repeat of another's.

    All contracts share one history of IDs. Two events of different contracts never have
    the same payload, so a conflict reveals that they share an ID.
    """
    if deduplicate is None or deduplicate.conflicts or len(source.schemas) == 1:
        return
    yield Problem(
        code="PIPELINE_CONFLICTS",
        at=("deduplicate", "conflicts"),
        saw=f"conflicts is false, and there are {len(source.schemas)} contracts.",
        why="If two events of different contracts had the same ID, the second would "
        "be dropped as a repeat without a trace.",
        fix="Leave conflicts out, or read each contract with its own pipeline.",
    )


def check_repeats_can_be_known(
    deduplicate: Deduplicate | None, source: Source
) -> Iterator[Problem]:
    """Yield a problem if no event can have the ID of an earlier one."""
    if deduplicate is not None and isinstance(source.event_id, PositionId):
        yield Problem(
            code="PIPELINE_VALUE",
            at=("deduplicate",),
            saw="The event ID is the record's position in Kafka.",
            why="No two records have the same position, so no repeat can be noticed.",
            fix="Remove deduplicate (in Python, write deduplicate=None), or name a "
            "field or header with the producer's ID.",
        )


def bucket_seconds(horizon: timedelta | None) -> int:
    """Return the seconds of event time of a bucket for a pipeline's first horizon."""
    if horizon is None:
        return _BUCKET_SECONDS_DEFAULT
    seconds = int(horizon.total_seconds()) // BUCKETS_PER_HORIZON
    return max(seconds, _BUCKET_SECONDS_MIN)


def check_future_buckets(
    deduplicate: Deduplicate | None, source: Source
) -> Iterator[Problem]:
    """Yield a problem if one producer's clock could make too many buckets.

    In the past, the horizon limits the number of buckets, because older events are
    expired. In the future, only the bound limits it.
    """
    if deduplicate is None:
        return
    width_s = bucket_seconds(deduplicate.horizon)
    buckets = -(int(source.future_bound.total_seconds()) // -width_s)
    if buckets <= BUCKETS_MAX:
        return
    yield Problem(
        code="PIPELINE_FUTURE_BOUND",
        at=("source", "future_bound"),
        saw=f"future_bound is {buckets} buckets of seen IDs long: with this horizon a "
        f"bucket is {width_s} s of event time.",
        why=f"Each bucket is a table, and the limit is {BUCKETS_MAX}: a producer with "
        "a wrong clock could create all of them.",
        fix=f"Let future_bound be at most {BUCKETS_MAX * width_s} seconds, or "
        "deduplicate.horizon longer.",
    )


class DeduplicateKeys(Keys[Deduplicate]):
    """The keys of ``deduplicate``."""

    part = Deduplicate

    horizon: Duration = DEDUPLICATE_HORIZON
    conflicts: Flag = True
    false_positives: Share = FALSE_POSITIVES
