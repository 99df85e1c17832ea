"""Rules, the data that they judge, and how each condition judges it.

An observation is one pipeline at one moment of the home's clock. A condition that
compares with the past keeps a mark, the place where the pipeline stood when the
condition began; everything else it needs is in the observation.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo

from tallyweir.services.operate.cost.estimate import (
    Prices,
    estimate_cost,
    read_prices,
    shares_of_budget,
)
from tallyweir.sinks.postgres.audit import Usage
from tallyweir.sinks.postgres.records.alert_book import Severity
from tallyweir.sinks.protocol.durations import EXAMPLES, format_duration, parse_duration
from tallyweir.sinks.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of a condition.

    Attributes:
        holds: The condition holds now.
        value: The number that the condition compares.
        told: The finding in a sentence.
        mark: Where the pipeline stood when the condition began.
        is_anew: The former period is over: the condition holds, but only since now.
    """

    holds: bool
    value: float
    told: str
    mark: int | None = None
    is_anew: bool = False


def _duration(written: object) -> timedelta:
    if not isinstance(written, str):
        raise ValueError(f"a duration is written such as {EXAMPLES}")  # noqa: TRY004
    try:
        return parse_duration(written)
    except ValueError as error:
        raise ValueError(f"{error}; write one such as {EXAMPLES}") from None


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(_duration)]
#: A threshold of zero would always be exceeded.
Threshold: TypeAlias = Annotated[Duration, Field(gt=timedelta())]

_AT_ONCE = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule(abc.ABC):
    """One rule of the rules file.

    Attributes:
        channels: Channels that are told; if empty, the alert is only shown.
        severity: How urgent an alert of this rule is.
        pipelines: A shell-style pattern of pipeline names.
        lasting: How long the condition must hold before the alert fires; ``for`` in the
            file.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    channels: tuple[str, ...]
    severity: Severity = Severity.WARNING
    pipelines: str = "*"
    lasting: Annotated[Duration, Field(alias="for")] = _AT_ONCE

    def is_about(self, pipeline: str) -> bool:
        """Return whether the rule covers a pipeline."""
        return fnmatchcase(pipeline, self.pipelines)

    @abc.abstractmethod
    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        """Judge an observation.

        Args:
            seen: The observation.
            mark: Mark of the alert that lasts; None without one.

        Returns:
            None when the condition cannot be judged; then nothing changes.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness(AlertRule):
    """The newest committed event is older than it should be."""

    when: Literal["freshness"]
    above: Threshold

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        del mark
        if seen.freshness_s is None:
            return None
        return Judgement(
            holds=seen.freshness_s > self.above.total_seconds(),
            value=seen.freshness_s,
            told=f"The newest committed event is {_age(seen.freshness_s)} old; more "
            f"than {format_duration(self.above)} is too much.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LagGrowth(AlertRule):
    """The lag is above the limit, and not below the mark: the lag when it began."""

    when: Literal["lag_growth"]
    above: Annotated[int, Field(ge=0, strict=True)]

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        if seen.lag is None:
            return None
        is_anew = mark is not None and seen.lag < mark
        began = seen.lag if mark is None or is_anew else mark
        return Judgement(
            holds=seen.lag > self.above,
            value=seen.lag,
            told=f"{seen.lag:,} records wait, and {began:,} waited when it began; more "
            f"than {self.above:,} is too much.",
            mark=began,
            is_anew=is_anew,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters(AlertRule):
    """Too many of the records read are dead."""

    when: Literal["dead_letters"]
    above: Annotated[float, Field(ge=0, lt=1, strict=True)]
    over: Threshold = timedelta(minutes=15)

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        del mark
        share = seen.dead_shares.get(self.over)
        if share is None:
            return None
        return Judgement(
            holds=share > self.above,
            value=share,
            told=f"{share:.2%} of the records of the last {format_duration(self.over)} "
            f"are dead letters; more than {self.above:.2%} is too much.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(AlertRule):
    """Records wait and no batch is published; the mark is the newest batch."""

    when: Literal["stall"]
    lasting: Annotated[Threshold, Field(alias="for")] = timedelta(minutes=5)

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        if seen.lag is None:
            return None
        return Judgement(
            # A paused pipeline publishes nothing, which is no stall.
            holds=seen.lag > 0 and seen.paused_s is None,
            value=seen.lag,
            told=f"{seen.lag:,} records wait, and nothing was published after batch "
            f"{seen.last_sequence}.",
            mark=seen.last_sequence,
            is_anew=mark is not None and mark != seen.last_sequence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt(AlertRule):
    """For too long, a decided batch is not committed in every database."""

    when: Literal["in_doubt"]
    above: Threshold

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        del mark
        return Judgement(
            holds=seen.in_doubt_s > self.above.total_seconds(),
            value=seen.in_doubt_s,
            told=f"A batch is decided for {_age(seen.in_doubt_s)} and not committed in "
            f"every database; more than {format_duration(self.above)} is too much.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionHeadroom(AlertRule):
    """Kafka will soon delete unread records."""

    when: Literal["retention_headroom"]
    below: Threshold

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        del mark
        left_s = seen.headroom_s
        if left_s is None:
            return None
        if math.isinf(left_s):
            told = "Kafka deletes no unread record"
        elif left_s > 0:
            told = f"Kafka deletes unread records in {_age(left_s)}"
        else:
            told = "Kafka is about to delete unread records, or already has"
        return Judgement(
            holds=left_s < self.below.total_seconds(),
            value=left_s,
            told=f"{told}; less than {format_duration(self.below)} is too little.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverGone(AlertRule):
    """A pipeline had a driver, and has none now."""

    when: Literal["driver_gone"]

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        del mark
        return Judgement(
            holds=seen.is_driver_gone and seen.paused_s is None,
            value=float(seen.is_driver_gone),
            told="No driver is connected to the home database.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedTooLong(AlertRule):
    """A pipeline has been paused for too long."""

    when: Literal["paused"]
    above: Threshold

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        del mark
        paused_s = seen.paused_s or 0.0
        return Judgement(
            holds=paused_s > self.above.total_seconds(),
            value=paused_s,
            told=f"It is paused for {_age(paused_s)}; more than "
            f"{format_duration(self.above)} is too long.",
        )


def _read_prices(written: object, info: ValidationInfo) -> object:
    """Read the file of prices that a rule names, relative to the rules file."""
    if not isinstance(written, str):
        raise ValueError("it is the path of a file of prices")  # noqa: TRY004
    assert isinstance(info.context, Path), "the directory of the rules"
    try:
        prices = read_prices(info.context / written)
    except ConfigurationError as error:
        raise ValueError(error.saw.removesuffix(".")) from None
    if prices.budget is None:
        raise ValueError(f"{written} has no budget")
    return prices


@dataclass(frozen=True, slots=True, kw_only=True)
class OverBudget(AlertRule):
    """A pipeline costs more than the budget in a file of prices."""

    when: Literal["over_budget"]
    prices: Annotated[Prices, BeforeValidator(_read_prices)]
    over: Threshold = timedelta(days=1)

    def judge(self, seen: Observation, mark: int | None) -> Judgement | None:
        del mark
        usage = seen.usages.get(self.over)
        if usage is None or self.prices.budget is None:
            return None
        estimate = estimate_cost(usage, self.prices)
        shares = shares_of_budget(estimate, self.prices.budget)
        what, share = max(shares.items(), key=itemgetter(1))
        return Judgement(
            holds=share > 1,
            value=share,
            told=f"At the rate of the last {format_duration(self.over)}, {what} takes "
            f"{share:.0%} of its budget.",
        )


AnyRule: TypeAlias = Annotated[
    Freshness
    | LagGrowth
    | DeadLetters
    | Stall
    | InDoubt
    | RetentionHeadroom
    | DriverGone
    | PausedTooLong
    | OverBudget,
    Field(discriminator="when"),
]


def _age(seconds: float) -> str:
    """Format a span for people, coarser as it grows."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One pipeline at one moment.

    Attributes:
        observed_at: The moment, by the home database's clock.
        last_sequence: The newest published batch; 0 before the first.
        lag: Offsets yet to read; None when Kafka does not say.
        freshness_s: Seconds that the newest committed event time is behind the clock;
            None before the first event.
        dead_shares: Share of dead letters among the records read, by span.
        in_doubt_s: Seconds since the decision of the oldest batch that is not committed
            in every database; 0 without one.
        headroom_s: Seconds until Kafka deletes the first unread record; infinite when
            nothing is unread, 0 when it is deleted already; None when Kafka does not
            say.
        is_driver_gone: It had a driver, and no driver is connected now.
        paused_s: Seconds since it was paused; None when it is not.
        usages: Usage of its batches by span.
    """

    pipeline: str
    observed_at: datetime
    last_sequence: int
    lag: int | None
    freshness_s: float | None
    dead_shares: Mapping[timedelta, float]
    in_doubt_s: float
    headroom_s: float | None
    is_driver_gone: bool
    paused_s: float | None
    usages: Mapping[timedelta, Usage]
