"""Alerts as the home database keeps them, and the facts that their rules need.

``AlertBook`` is the alerts service's session, and the lock that makes it the only one.
One transaction writes a change of an alert together with its notifications. A
notification is read only through the session that holds the lock. So two services never
send the same one, unless the first was silent so long that the server ended its
session. ``read_firing`` and ``read_pipeline_facts`` are for any reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import psycopg
from psycopg import Connection
from psycopg.errors import UndefinedTable
from psycopg.rows import TupleRow, dict_row

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    ledger_missing,
    snapshot,
)
from tallyweir.sinks.postgres.server.locks import LockedSession
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.protocol.errors import RetryableError


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


_SQL = load_statements("tallyweir.sinks.postgres.records", "alerting.sql")

#: An arbitrary number; it must be the same for every Tallyweir.
ADVISORY_LOCK = 7_255_946_013
#: A service that sends no statement for so long loses its lock. This is longer than it
#: ever takes between two statements.
IDLE_TIMEOUT_S = 120.0
#: How long an alert is kept after its end.
KEPT_DAYS = 90

_Connection = psycopg.Connection[TupleRow]


class AlertBook(LockedSession):
    """A ``LockedSession``, with the reads and writes of the alerts service."""

    def __init__(self, dsn: str, *, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        super().__init__(
            dsn,
            lock=ADVISORY_LOCK,
            application_name="tallyweir alerts",
            idle_timeout_s=idle_timeout_s,
        )

    def read_lasting(self) -> dict[UUID, Alert]:
        """Return the alerts that last, including those that have not fired yet."""

        def read(connection: _Connection) -> dict[UUID, Alert]:
            with connection.cursor(row_factory=dict_row) as cursor:
                rows = cursor.execute(_SQL["lasting"]).fetchall()
            return {
                row.pop("alert_id"): Alert(
                    severity=Severity(row.pop("severity")), **row
                )
                for row in rows
            }

        return self.run("reading alerts", read)

    def record(
        self,
        *,
        begun: Sequence[tuple[Alert, Sequence[str]]],
        changed: Mapping[UUID, tuple[Alert, Sequence[str]]],
        ended: Mapping[UUID, datetime],
    ) -> None:
        """Write changes of alerts and their notifications in one transaction.

        Args:
            begun: New alerts, each with the channels to notify that it fires; no
                channels if it has not fired yet.
            changed: The same for alerts that last; no channels if there is no news.
            ended: When alerts ended. An alert that never fired is deleted.

        Raises:
            RetryableError: ``ALERT_CHANGED``, or the server did not answer.

        Crash:
            Before the commit nothing has changed, and the next check finds the same.
            After it, the notifications are stored, and the next service sends them.
        """

        def write(connection: _Connection) -> None:
            for alert, channels in begun:
                row = fetch_row(connection, _SQL["begin"], asdict(alert))
                _deliver(connection, row[0], channels)
            for alert_id, (alert, channels) in changed.items():
                values = {**asdict(alert), "alert_id": alert_id}
                found = connection.execute(_SQL["change"], values)
                _check_one(found.rowcount, alert_id)
                _deliver(connection, alert_id, channels)
            for alert_id, resolved_at in ended.items():
                values = {"alert_id": alert_id, "resolved_at": resolved_at}
                if connection.execute(_SQL["forget"], values).rowcount:
                    continue
                _check_one(
                    connection.execute(_SQL["resolve"], values).rowcount, alert_id
                )
                connection.execute(_SQL["deliver_resolved"], values)

        if begun or changed or ended:
            self.run("writing alerts", write)

    def read_due(
        self, channels: Sequence[str], *, forgetful: Sequence[str], rows_max: int
    ) -> list[Notification]:
        """Read the notifications to send now, the longest due first.

        Args:
            channels: Channels that can be notified at all.
            forgetful: Those channels that must be notified again while an alert lasts.
            rows_max: Largest number of notifications.
        """
        values = {
            "channels": list(channels),
            "forgetful": list(forgetful),
            "rows": rows_max,
        }

        def read(connection: _Connection) -> list[Notification]:
            with connection.cursor(row_factory=dict_row) as cursor:
                rows = cursor.execute(_SQL["due"], values).fetchall()
            return [
                Notification(
                    about=About(row.pop("about")),
                    severity=Severity(row.pop("severity")),
                    is_repeat=row.pop("delivered_at") is not None,
                    **row,
                )
                for row in rows
            ]

        return self.run("reading alerts to announce", read)

    def note_delivered(self, told: Notification, *, again_s: float) -> None:
        """Note that a channel has taken a notification.

        Args:
            told: The notification.
            again_s: Seconds until a channel that forgets is notified again.

        Crash:
            Before the commit the notification is sent once more, under the same ID;
            after it, it is not.
        """
        self._note("delivered", told, again_s=again_s)

    def note_failure(self, told: Notification, *, code: str, again_s: float) -> None:
        """Note that a channel did not take a notification, and when to try again."""
        self._note("not_delivered", told, again_s=again_s, error_code=code)

    def forget_old(self) -> None:
        """Delete alerts that ended ``KEPT_DAYS`` days ago."""
        values = {"days": KEPT_DAYS}
        self.run("deleting old alerts", lambda c: c.execute(_SQL["forget_old"], values))

    def _note(self, statement: str, told: Notification, **more: object) -> None:
        values = {
            "alert_id": told.alert_id,
            "channel": told.channel,
            "about": told.about.value,
            **more,
        }
        self.run(
            "recording announced alerts", lambda c: c.execute(_SQL[statement], values)
        )


def _deliver(connection: _Connection, alert_id: UUID, channels: Sequence[str]) -> None:
    values = {"alert_id": alert_id, "channels": list(channels)}
    connection.execute(_SQL["deliver_firing"], values)


def _check_one(rows: int, alert_id: UUID) -> None:
    if rows != 1:
        raise RetryableError(
            "ALERT_CHANGED",
            saw=f"The alert {alert_id} has changed since it was read.",
            why="Another process changed it at the same time.",
            fix="Nothing to do: the service reads it again.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """An alert that has fired and lasts; the fields as in ``Alert``.

    Attributes:
        untold: Channels that have not taken the notification yet.
    """

    pipeline: str
    rule: str
    severity: str
    since: datetime
    fired_at: datetime
    value: float
    told: str
    untold: tuple[str, ...]


def read_firing(connection: Connection[TupleRow]) -> tuple[FiringAlert, ...]:
    """Read the firing alerts, by pipeline, those that wake the operator first.

    Raises:
        ConfigurationError: ``LEDGER_MISSING``, or a table may not be read.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading firing alerts"):
        try:
            rows = fetch(connection, _SQL["firing"])
        except UndefinedTable as error:
            raise ledger_missing() from error
    return tuple(FiringAlert(**{**row, "untold": tuple(row["untold"])}) for row in rows)


#: Largest number of newest batches that a share of dead letters covers: the query must
#: stay cheap if a driver publishes fifty batches a second.
BATCHES_MAX = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """Facts about one pipeline.

    Attributes:
        in_doubt_s: Seconds since the decision of the oldest batch that is not noted as
            committed in every database; 0 without one.
        dead_shares: Share of dead letters among the records read, by span of time.
    """

    in_doubt_s: float
    dead_shares: Mapping[timedelta, float]


def read_pipeline_facts(
    connection: Connection[TupleRow], spans: Iterable[timedelta]
) -> dict[str, PipelineFacts]:
    """Read the facts of all pipelines from one snapshot, by pipeline.

    Args:
        connection: To the home, outside of a transaction.
        spans: Spans of time over which shares of dead letters are wanted.

    Raises:
        ConfigurationError: A table may not be read.
        RetryableError: The server went away.
    """
    shares: dict[str, dict[timedelta, float]] = {}
    with snapshot(connection, doing="reading the facts that rules need"):
        rows = fetch(connection, _SQL["pipeline_facts"])
        for span in spans:
            for row in fetch(
                connection, _SQL["dead_shares"], span=span, batches=BATCHES_MAX
            ):
                shares.setdefault(row["pipeline"], {})[span] = row["share"]
    return {
        row["pipeline"]: PipelineFacts(
            in_doubt_s=row["in_doubt_s"],
            dead_shares=shares.get(row["pipeline"], {}),
        )
        for row in rows
    }
