"""An alert, and its notifications."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class Severity(StrEnum):
    """Whether an alert wakes the operator."""

    PAGE = "page"
    WARNING = "warning"


class About(StrEnum):
    """What a notification reports about its alert."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A condition of a rule that holds for a pipeline.

    Attributes:
        rule: Its name.
        pipeline: Its name.
        severity: The rule's severity.
        since: When the condition was first seen to hold, by the database's clock.
        mark: Where the pipeline stood then, for conditions that compare with that.
        value: The number that the rule compares, as last seen, in the condition's unit.
        told: The condition in a sentence, as last seen.
        observed_at: When it was last seen.
        fired_at: When it fired; None until it has held for as long as the rule asks.
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
        """Identity of a lasting alert: at most one has it."""
        return self.pipeline, self.rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A message to a channel, sent once if all goes well.

    Attributes:
        channel: The channel's name.
        about: What it reports.
        failures: How often in a row the channel has not taken it.
        is_repeat: Whether the channel has taken it before, and forgets.
        alert_id: The alert's id, the same in each notification about it.
        resolved_at: When the alert ended; None while it lasts.
        now: The database's clock when the notification was read.
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
        """Unique id of this notification, the same each time it is sent."""
        return f"{self.alert_id}/{self.about.value}"
