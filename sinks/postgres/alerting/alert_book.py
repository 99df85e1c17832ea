"""The alerts service's session with the home database, and the lock that makes it one.

One transaction writes a change of an alert together with its notifications. A
notification is read only through the session that holds the lock. So two services never
send the same one, unless the first was silent so long that the server ended its
session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow, dict_row

from tallyweir.sinks.postgres.alerting.alert import About, Alert, Notification, Severity
from tallyweir.sinks.postgres.server.locked_session import LockedSession
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import RetryableError

_SQL = load_statements("tallyweir.sinks.postgres.alerting", "alerting.sql")

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
                row = connection.execute(_SQL["begin"], asdict(alert)).fetchone()
                assert row is not None
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
