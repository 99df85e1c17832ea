"""An alert, and what is to be told of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class Severity(StrEnum):
    """Whether somebody is woken."""

    PAGE = "page"
    WARNING = "warning"


class About(StrEnum):
    """What a notification tells of its alert."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A condition of a rule that holds for a pipeline.

    Attributes:
        rule: Its name.
        pipeline: Its name.
        severity: Of the rule.
        since: When the condition was first seen to hold, by the database's clock.
        mark: Where the pipeline stood then, for conditions that compare with that.
        value: The number that the rule compares, when last seen; its unit is the
            condition's.
        told: The condition in a sentence, when last seen.
        observed_at: When that was.
        fired_at: None while it has not held for as long as the rule asks.
    """

    rule: str
    pipeline: str
    severity: Severity
    since: datetime
    mark: int | None
    value: float
    told: str
    observed_at: datetime
    fired_at: datetime | None

    @property
    def key(self) -> tuple[str, str]:
        """What at most one lasting alert has."""
        return self.pipeline, self.rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One thing that a channel is to be told, once if all goes well.

    Attributes:
        channel: Its name.
        about: What it tells.
        failures: How often in a row the channel has not taken it.
        is_repeat: The channel has taken it before, and forgets.
        alert_id: Of the alert; the same in each notification of it.
        resolved_at: None while the alert lasts.
        now: The database's clock when it was read.
    """

    channel: str
    about: About
    failures: int
    is_repeat: bool
    alert_id: UUID
    rule: str
    pipeline: str
    severity: Severity
    since: datetime
    fired_at: datetime
    resolved_at: datetime | None
    value: float
    told: str
    now: datetime

    @property
    def id(self) -> str:
        """What all sendings of this notification share, and no other has."""
        return f"{self.alert_id}/{self.about.value}"
