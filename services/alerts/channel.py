"""Channels: what every channel does, and how its errors look.

A channel's address may itself be a secret, so errors and logs show only the channel's
name.
"""

from __future__ import annotations

import json
import socket
from typing import Protocol

from tallyweir.sinks.postgres.alerting.alert import About, Notification
from tallyweir.sinks.protocol.errors import RetryableError

#: Limit for making a connection, and between two bytes of an answer.
STEP_TIMEOUT_S = 5.0
#: Limit for a whole notification.
TIMEOUT_S = 15.0


class Channel(Protocol):
    """Delivers notifications.

    Attributes:
        again_s: Seconds after which it needs a repeat while an alert lasts; None if
            never.
        address: Host and port that it connects to; may be a secret.
    """

    @property
    def again_s(self) -> float | None: ...

    @property
    def address(self) -> tuple[str, int]: ...

    def tell(self, told: Notification, installation: str) -> None:
        """Deliver a notification within ``TIMEOUT_S`` seconds.

        Raises:
            RetryableError: ``ALERT_CHANNEL_UNREACHABLE`` or ``ALERT_CHANNEL_REFUSED``.

        Crash:
            The channel may have taken the notification although the service does not
            know it; the service sends it again under the same ID.
        """


def check_reachable(name: str, address: tuple[str, int]) -> None:
    """Connect to a channel's address, and send nothing.

    Raises:
        RetryableError: ``ALERT_CHANNEL_UNREACHABLE``.
    """
    try:
        socket.create_connection(address, timeout=STEP_TIMEOUT_S).close()
    except OSError as error:
        raise unreachable(name, type(error).__name__) from None


def notification_json(told: Notification, installation: str) -> dict[str, object]:
    """Return a notification as it is sent; docs/alerts.md has it as a table."""
    return {
        "id": told.id,
        "about": told.about.value,
        "alert": str(told.alert_id),
        "installation": installation,
        "rule": told.rule,
        "pipeline": told.pipeline,
        "severity": told.severity.value,
        "told": told.told,
        "value": told.value,
        "since": told.since.isoformat(),
        "fired_at": told.fired_at.isoformat(),
        "resolved_at": told.resolved_at and told.resolved_at.isoformat(),
        "sent_at": told.now.isoformat(),
    }


def headline(told: Notification) -> str:
    """Return one line that says what it is about."""
    word = "RESOLVED" if told.about is About.RESOLVED else told.severity.upper()
    return f"[{word}] {told.pipeline}: {told.rule}"


def encode(value: object) -> bytes:
    """Encode as JSON; an infinite headroom, which JSON lacks, never fires."""
    return json.dumps(value, allow_nan=False).encode()


def unreachable(channel: str, what: str) -> RetryableError:
    """Return the error for an address that does not answer in time."""
    return RetryableError(
        "ALERT_CHANNEL_UNREACHABLE",
        saw=f"Channel {channel} cannot be notified: {what}.",
        why="People who rely on it do not learn that an alert fires or has ended.",
        fix="Check the address in the rules file, and that this host can reach it. The "
        "service tries again, at least every five minutes.",
    )


def refused(channel: str, what: str) -> RetryableError:
    """Return the error for a channel that refuses a notification."""
    return RetryableError(
        "ALERT_CHANNEL_REFUSED",
        saw=f"Channel {channel} refused a notification: {what}.",
        why="People who rely on it do not learn that an alert fires or has ended.",
        fix="Check the channel's entry in the rules file, and its secret or password. "
        "The service tries again, at least every five minutes.",
    )
